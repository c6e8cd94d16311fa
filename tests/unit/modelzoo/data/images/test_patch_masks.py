"""Masks hide blocks of patches in a share of the images of a batch."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from modelzoo.data.images.patch_masks import PatchMasks
from tests.support.errors import raises
from waferstream.core.errors import ConfigError

KEYS: dict[str, Any] = {
    "image_size": 224,
    "patch_size": [14, 16],
    "mask_probability": 0.5,
    "mask_ratio_tuple": (0.1, 0.5),
}


def drawn(num_images: int, seed: int = 0, **changes: Any) -> np.ndarray:
    return PatchMasks(**(KEYS | changes)).draw(num_images, Random(seed))


def test_half_of_the_images_have_masks() -> None:
    """Masked image i of 32 hides a share of the i-th part of the range, or less."""
    masks = drawn(65)
    assert masks.shape == (65, 16 * 14)
    assert masks.dtype == np.int64
    assert set(np.unique(masks)) == {0, 1}
    shares = np.sort(masks.mean(1))
    assert (shares[:33] == 0).all()
    assert (shares[33:] > 0).all()
    bounds = np.linspace(0.1, 0.5, 33)[1:]
    assert (shares[33:] <= bounds).all()
    assert np.abs(shares[33:] - bounds).mean() < 0.05


def test_order_of_images_and_blocks_is_random() -> None:
    assert np.array_equal(drawn(8), drawn(8))
    assert not np.array_equal(drawn(8), drawn(8, seed=1))
    hidden = np.stack([drawn(8, seed=seed).any(1) for seed in range(8)])
    assert (hidden.sum(1) == 4).all()
    assert hidden.any(0).all()


def test_hidden_patches_are_blocks() -> None:
    """One block has the wanted area at most, and the aspects of its bounds."""
    for seed in range(20):
        mask = drawn(1, seed, mask_probability=1.0, mask_ratio_tuple=(0.2, 0.2), min_num_patches=44)
        rows, columns = np.nonzero(mask.reshape(16, 14))
        box = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        assert mask.sum() <= 44
        assert box >= mask.sum()


def test_no_mask_without_probability() -> None:
    assert not drawn(4, mask_probability=0.0).any()
    with raises(ConfigError, "not-allowed"):
        drawn(4, mask_ratio_tuple=(0.5, 0.1))
