"""Crops and masks are functions of the seed and the step."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from modelzoo.data.images.dino import MultiCrop, PatchMasks
from tests.support.errors import raises
from tests.support.models.tiny_dino import DATA, write_images
from waferstream.core.errors import ConfigError
from waferstream.workload.data import build_source

KEYS: dict[str, Any] = {
    "image_size": 224,
    "patch_size": [14, 16],
    "mask_probability": 0.5,
    "mask_ratio_tuple": (0.1, 0.5),
}


def test_batch_has_crops_and_masks(tmp_path: Path) -> None:
    """Every epoch has other ones, a second source the same."""
    section = write_images(tmp_path)
    source, again = (build_source(section, "test") for _ in range(2))
    first, later = source.batch(0), source.batch(2)
    assert {name: (tuple(t.shape), t.dtype) for name, t in first.items()} == {
        "global_view": ((6, 2, 3, 12, 12), torch.float32),
        "local_view": ((6, 3, 3, 8, 8), torch.float32),
        "collated_masks": ((6, 2, 9), torch.int64),
    }
    assert len(source) == 2
    assert int(first["collated_masks"].any(-1).sum()) <= 6  # half of the large crops
    assert first["collated_masks"].any()
    for name, tensor in again.batch(2).items():
        assert torch.equal(tensor, later[name])
        assert not torch.equal(tensor, first[name])


def test_arguments_may_differ_between_crops() -> None:
    """A list with an entry for each crop; other lists are for all of them."""
    crops = MultiCrop(**DATA["ssl_transform"]["multi_crop_transform"])
    changes = [crops.changes(crop) for crop in range(crops.num_crops)]
    assert [own[0].size for own in changes] == [12, 12, 8, 8, 8]  # type: ignore[union-attr]
    assert [own[4].p for own in changes] == [1.0, 0.1, 0.5, 0.5, 0.5]  # type: ignore[union-attr]
    assert all(own[-1] == changes[0][-1] for own in changes)


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("masked_patch_transform", "image_size"), 16, "not-allowed"),
        (
            ("multi_crop_transform", "multicrop_transform_list"),
            [{"name": "to_tensor", "p": 1}],
            "unknown-key",
        ),
        (
            ("multi_crop_transform", "multicrop_transform_list"),
            [{"name": "random_solarize"}],
            "missing-key",
        ),
        (("multi_crop_transform", "crops"), 3, "unknown-key"),
    ],
)
def test_wrong_transforms_are_refused(
    path: tuple[str, str], value: Any, code: str, tmp_path: Path
) -> None:
    section = copy.deepcopy(write_images(tmp_path))
    section["ssl_transform"][path[0]][path[1]] = value
    with raises(ConfigError, code=code) as caught:
        build_source(section, "test")
    assert "ssl_transform" in str(caught.value)


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
