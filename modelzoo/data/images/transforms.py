"""Changes to images before a model reads them, as torchvision makes them with Pillow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from pydantic import Discriminator, Field, PositiveFloat, PositiveInt, Tag, model_validator

from modelzoo.data.images.colours import (
    ColorJitter,
    ImageTransform,
    RandomGaussianBlur,
    RandomGrayScale,
    RandomSolarize,
)
from modelzoo.data.order import Draw
from waferstream.core.config import Config

Size = tuple[PositiveInt, PositiveInt]
"""Height and width."""

_Brightness = Annotated[int, Field(ge=0, le=255)]

Interpolation = Literal["nearest", "bilinear", "bicubic"]

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}

_ATTEMPTS = 10
"""Boxes that are drawn before one in the middle is taken (torchvision, RandomResizedCrop)."""

_MOST_PIXELS = 2 * 89_478_485
"""Pixels of the largest image; Pillow refuses to read more (Image.MAX_IMAGE_PIXELS)."""

_WHITE = 255.0
"""Brightest value of a pixel."""


class Resize(ImageTransform):
    """Scale an image."""

    name: Literal["resize"]
    size: Size | PositiveInt
    """Height and width; one number is that of the shorter side, whose ratio stays."""
    interpolation: Interpolation = "bilinear"

    def apply(self, image: Image.Image, _draw: Draw) -> Image.Image:
        """Return the scaled image; ValueError if it is so narrow that it would fill the memory."""
        if isinstance(self.size, tuple):
            height, width = self.size
        else:
            shorter = min(image.size)
            width, height = (int(self.size * side / shorter) for side in image.size)
        if width * height > _MOST_PIXELS:
            raise ValueError(f"it would be scaled to {width} x {height} pixels")
        return image.resize((width, height), _FILTERS[self.interpolation])


class CenterCrop(ImageTransform):
    """Cut a box out of the middle of an image; what lies outside of the image is black."""

    name: Literal["center_crop"]
    size: Size | PositiveInt
    """Height and width; one number is both."""

    def apply(self, image: Image.Image, _draw: Draw) -> Image.Image:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        left, top = _half(image.width - width), _half(image.height - height)
        return image.crop((left, top, left + width, top + height))


class ExpandToSquare(ImageTransform):
    """Put an image in the middle of a square of one colour, as wide as its longer side."""

    name: Literal["expand_to_square"]
    background_color: tuple[_Brightness, _Brightness, _Brightness]
    """Red, green and blue of the square."""

    def apply(self, image: Image.Image, _draw: Draw) -> Image.Image:
        """Return the square; ValueError if it would fill the memory."""
        side = max(image.size)
        if side * side > _MOST_PIXELS:
            raise ValueError(f"it would be expanded to {side} x {side} pixels")
        if image.width == image.height:
            return image
        square = Image.new(image.mode, (side, side), self.background_color)
        square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
        return square


class RandomResizedCrop(ImageTransform):
    """Cut a box out of an image and scale it (Szegedy et al. 2015, section 6)."""

    name: Literal["random_resized_crop"]
    size: Size | PositiveInt
    """Height and width; one number is both."""
    scale: tuple[PositiveFloat, PositiveFloat] = (0.08, 1.0)
    """Least and largest share of the image."""
    ratio: tuple[PositiveFloat, PositiveFloat] = (3 / 4, 4 / 3)
    """Least and largest ratio of width to height."""
    interpolation: Interpolation = "bilinear"

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        if self.scale[0] > self.scale[1] or self.ratio[0] > self.ratio[1]:
            raise ValueError("scale and ratio must each have the smaller number first")
        return self

    def apply(self, image: Image.Image, draw: Draw) -> Image.Image:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        left, top, across, down = self._box(*image.size, draw)
        cut = image.crop((left, top, left + across, top + down))
        return cut.resize((width, height), _FILTERS[self.interpolation])

    def _box(self, width: int, height: int, draw: Draw) -> tuple[int, int, int, int]:
        """Return left, top, width and height of a box in an image of ``width`` by ``height``."""
        least, most = map(log, self.ratio)
        for _ in range(_ATTEMPTS):
            area = width * height * (self.scale[0] + (self.scale[1] - self.scale[0]) * draw())
            ratio = exp(least + (most - least) * draw())
            across, down = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if 0 < across <= width and 0 < down <= height:
                top = int((height - down + 1) * draw())
                return int((width - across + 1) * draw()), top, across, down
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        across, down = min(width, round(height * ratio)), min(height, round(width / ratio))
        return (width - across) // 2, (height - down) // 2, across, down


class RandomHorizontalFlip(ImageTransform):
    """Mirror an image, left to right, at random."""

    name: Literal["random_horizontal_flip"]
    p: float = Field(default=0.5, ge=0, le=1)
    """Share of images that are mirrored."""

    def apply(self, image: Image.Image, draw: Draw) -> Image.Image:
        is_flipped = draw() < self.p
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if is_flipped else image


class ToTensor(Config):
    """Pixels of 8 bits to numbers from 0 to 1."""

    name: Literal["to_tensor"]


class Normalize(Config):
    """Subtract a mean from each channel, and divide it by a deviation."""

    name: Literal["normalize"]
    mean: tuple[float, float, float]
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat]

    def apply(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return normalized fp32 (3, height, width)."""
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (pixels - mean) / std


def _half(pixels: int) -> int:
    """Return half of the pixels to cut off, or to add where there are too few, as torchvision."""
    return round(pixels / 2) if pixels > 0 else -(-pixels // 2)


def _name(value: Any) -> Any:
    name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
    return "grayscale" if name in ("random_gray_scale", "random_grayscale") else name


Transform = Annotated[
    Annotated[Resize, Tag("resize")]
    | Annotated[CenterCrop, Tag("center_crop")]
    | Annotated[ExpandToSquare, Tag("expand_to_square")]
    | Annotated[RandomResizedCrop, Tag("random_resized_crop")]
    | Annotated[RandomHorizontalFlip, Tag("random_horizontal_flip")]
    | Annotated[ColorJitter, Tag("color_jitter_with_prob")]
    | Annotated[RandomGrayScale, Tag("grayscale")]
    | Annotated[RandomGaussianBlur, Tag("random_gaussian_blur_random_radius")]
    | Annotated[RandomSolarize, Tag("random_solarize")]
    | Annotated[ToTensor, Tag("to_tensor")]
    | Annotated[Normalize, Tag("normalize")],
    Discriminator(_name),
]
"""A change, by its name and arguments."""


def checked_order(transforms: tuple[Transform, ...]) -> tuple[Transform, ...]:
    """Return changes; ValueError unless images change, then become tensors, then are normalized."""
    ranks = [
        0 if isinstance(each, ImageTransform) else 1 if isinstance(each, ToTensor) else 2
        for each in transforms
    ]
    if ranks != sorted(ranks) or ranks.count(1) != 1:
        raise ValueError("must have to_tensor once, before normalize and after all others")
    return transforms


def transformed(image: Image.Image, transforms: Sequence[Transform], draw: Draw) -> torch.Tensor:
    """Return an image with three channels as fp32 (3, height, width), changed in order."""
    for each in transforms:
        if isinstance(each, ImageTransform):
            image = each.apply(image, draw)
    channels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    pixels = channels.to(torch.float32, memory_format=torch.contiguous_format) / _WHITE
    for each in transforms:
        if isinstance(each, Normalize):
            pixels = each.apply(pixels)
    return pixels
