"""Crops and masks are functions of the seed and the step."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from modelzoo.data.images.crops import MultiCrop
from modelzoo.data.registry import build_source
from tests.support.errors import raises
from tests.support.models.tiny_dino import DATA, write_images
from waferstream.core.errors import ConfigError


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
