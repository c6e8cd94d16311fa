"""Masks of patches in blocks (Bao et al. 2022, BEiT, algorithm 1; Zhou et al. 2022, iBOT)."""

from __future__ import annotations

from math import exp, log, sqrt
from random import Random
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from modelzoo.data.images.transforms import Size
from waferstream.core.config import Config, before

_ATTEMPTS = 10
"""Blocks that are drawn before a mask is left as it is (DINOv2, masking.py)."""


def _square(value: object) -> object:
    return (value, value) if isinstance(value, int) else value


Sides = Annotated[Size, before(_square, Size | PositiveInt)]
"""Height and width; one number is both."""


class PatchMasks(Config):
    """Which patches of the images of a batch are hidden.

    Of all images a share, rounded down, is masked. The range of shares of hidden patches is divided
    evenly among them: masked image i draws its share from part i. Images are in random order.
    """

    name: Literal["MaskedPatchTransform"] = "MaskedPatchTransform"
    image_size: Sides
    patch_size: Sides
    mask_probability: float = Field(ge=0, le=1)
    """Share of images with a mask; a block is also at most this share of an image."""
    mask_ratio_tuple: tuple[float, float]
    """Least and largest share of hidden patches in a masked image."""
    min_num_patches: PositiveInt = 4
    """Least area of a block that is drawn."""
    min_aspect: PositiveFloat = 0.3
    max_aspect: PositiveFloat | None = None
    """Ratios of height to width of a block; by default up to 1 / ``min_aspect``."""
    composed_transform: bool = False
    """No effect: crops are made by ``multi_crop_transform``."""

    @model_validator(mode="after")
    def _ratios_are_ordered(self) -> Self:
        low, high = self.mask_ratio_tuple
        if not 0 <= low <= high <= 1:
            raise ValueError("mask_ratio_tuple must be two shares, the smaller first")
        return self

    @property
    def grid(self) -> Size:
        """Patches down and across."""
        (height, width), (down, across) = self.image_size, self.patch_size
        return height // down, width // across

    def draw(self, num_images: int, random: Random) -> np.ndarray:
        """Return masks of the images of a batch, int64 (images, patches), 1 for hidden patches."""
        rows, columns = self.grid
        num_masked = int(num_images * self.mask_probability)
        bounds = np.linspace(*self.mask_ratio_tuple, num_masked + 1)
        masks = np.zeros((num_images, rows, columns), dtype=np.int64)
        for mask, low, high in zip(masks, bounds, bounds[1:], strict=False):
            self._hide(mask, int(rows * columns * random.uniform(low, high)), random)
        order = list(range(num_images))
        random.shuffle(order)
        return masks[order].reshape(num_images, -1)

    def _hide(self, mask: np.ndarray, wanted: int, random: Random) -> None:
        """Add blocks to a mask until enough patches are hidden, or no block fits."""
        hidden, most = 0, self.mask_probability * mask.size
        while hidden < wanted:
            added = self._add_block(mask, min(wanted - hidden, most), random)
            if not added:
                return
            hidden += added

    def _add_block(self, mask: np.ndarray, most: float, random: Random) -> int:
        """Hide a block of at most ``most`` new patches; return their number, 0 if none fits."""
        rows, columns = mask.shape
        aspects = log(self.min_aspect), log(self.max_aspect or 1 / self.min_aspect)
        for _ in range(_ATTEMPTS):
            area, aspect = random.uniform(self.min_num_patches, most), exp(random.uniform(*aspects))
            height, width = round(sqrt(area * aspect)), round(sqrt(area / aspect))
            if height >= rows or width >= columns:
                continue
            top, left = random.randint(0, rows - height), random.randint(0, columns - width)
            block = mask[top : top + height, left : left + width]
            added = height * width - int(block.sum())
            if 0 < added <= most:
                block[:] = 1
                return added
        return 0
