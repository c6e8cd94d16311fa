"""Weights do not depend on where weight servers keep masters and optimizer state."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from appliance.faults.strike import full_disk
from memoryx.memory import flash as module
from tests.support.errors import raises
from tests.support.runs.tiny_training import GPT, Shape, init_config, train_on_cluster
from waferstream.core.errors import (
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
    ConfigError,
)

SHALLOW = GPT | {"num_hidden_layers": 1}
RESIDENT_BYTES = 16_000
"""The largest parameter and its moments take 12,288 bytes; the model has 20 of a page or more."""

MOMENTUM: dict[str, Any] = {
    "optimizer": {"SGD": {"momentum": 0.9, "weight_decay": 0.01}},
    "precision": {},
}


@pytest.mark.parametrize("sections", [{}, MOMENTUM], ids=["adamw-clipped", "momentum"])
def test_weights_of_flash_are_those_of_dram(sections: dict[str, Any], tmp_path: Path) -> None:
    """Resumed from a checkpoint on other numbers of servers and systems, or in DRAM."""
    init, path = init_config(SHALLOW, **sections), tmp_path / "saved.mdl"
    dram = Shape(2, servers=2)
    flash = replace(dram, flash=(tmp_path, RESIDENT_BYTES))
    expected = train_on_cluster(init, dram, 4)
    train_on_cluster(init, flash, 2, save=path)
    other = replace(flash, num_csx=3, servers=3)
    assert train_on_cluster(init, other, 2, restore=path) == expected
    assert train_on_cluster(init, dram, 2, restore=path) == expected


@pytest.mark.parametrize("has_replicas", [False, True], ids=["replay", "replica"])
def test_lost_server_in_flash_is_replaced(has_replicas: bool, tmp_path: Path) -> None:
    init = init_config(SHALLOW)
    shape = Shape(
        2,
        servers=2,
        restarts=2,
        faults=("wgt-1@2:exception",),
        folder=tmp_path,
        flash=(tmp_path, RESIDENT_BYTES),
        has_replicas=has_replicas,
    )
    assert train_on_cluster(init, shape, 3) == train_on_cluster(init, Shape(), 3)


def test_small_bound_and_missing_folder_are_refused(tmp_path: Path) -> None:
    for flash, code in (
        ((tmp_path, 12_000), "flash-bound-too-small"),
        ((tmp_path / "none", RESIDENT_BYTES), "flash-path-not-usable"),
    ):
        with raises(ConfigError, code):
            train_on_cluster(init_config(SHALLOW), Shape(flash=flash), 1)


READ_ONLY = Path("/sys")  # for root, too


def test_read_only_path_is_refused() -> None:
    with raises(ConfigError, "flash-path-not-usable") as caught:
        train_on_cluster(init_config(SHALLOW), Shape(flash=(READ_ONLY, RESIDENT_BYTES)), 1)
    assert str(READ_ONLY) in str(caught.value.value)


def test_path_without_room_is_refused(tmp_path: Path) -> None:
    """The space is reserved before the first step."""
    shape = Shape(flash=(tmp_path, RESIDENT_BYTES))
    with full_disk(8192), raises(ApplianceResourceExhausted, "flash-path-full"):
        train_on_cluster(init_config(SHALLOW), shape, 1)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EIO])
def test_disk_that_fails_while_training_ends_the_run(number: int, tmp_path: Path) -> None:
    """Weights that were not written are never trained on."""
    failing = patch.object(module, "_write", side_effect=OSError(number, "the disk fails"))
    shape = Shape(flash=(tmp_path, RESIDENT_BYTES))
    with failing, raises(ApplianceRuntimeServerError, "flash-failed") as caught:
        train_on_cluster(init_config(SHALLOW), shape, 3)
    assert caught.value.value == "the disk fails"
