"""Images as sequences of patches, row by row (Dosovitskiy et al. 2021, ViT, section 3.1).

Shapes: B batch, C channels, P patches.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from modelzoo.data.images.transforms import Size


def grid_of(size: Sequence[int], patch_size: Size) -> Size:
    """Return the number of patches down and across an image of a height and width."""
    return size[0] // patch_size[0], size[1] // patch_size[1]


def check_patches(patch_size: Size, size: Size, name: str) -> Size:
    """Return the size of patches; ValueError unless they tile the size that ``name`` states."""
    if any(side % patch for side, patch in zip(size, patch_size, strict=True)):
        raise ValueError(f"patch_size must divide {name}, which is {size}")
    return patch_size


def to_patches(images: torch.Tensor, patch_size: Size) -> torch.Tensor:
    """Reshape (B, C, height, width) to (B, P, pixels of a patch)."""
    (rows, columns), (down, across) = grid_of(images.shape[2:], patch_size), patch_size
    parted = images.reshape(*images.shape[:2], rows, down, columns, across)
    return parted.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def to_images(patches: torch.Tensor, grid: Size, patch_size: Size) -> torch.Tensor:
    """Invert ``to_patches`` for a grid of patches down and across."""
    parted = patches.reshape(patches.shape[0], *grid, -1, *patch_size)
    return parted.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
