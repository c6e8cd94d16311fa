"""Images become patches, and images again."""

from __future__ import annotations

import torch

from modelzoo.models.blocks.patches import to_images, to_patches


def test_to_patches_cuts_the_image_row_by_row() -> None:
    """Row by row, each with the pixels of all channels."""
    image = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    patches = to_patches(image, (2, 2))
    assert patches.shape == (2, 6, 12)
    assert torch.equal(patches[1, 4], image[1, :, 2:4, 2:4].flatten())
    assert torch.equal(to_images(patches, (2, 3), (2, 2)), image)
