"""The small runs of the vendor's gigaGPT: configuration, data, comparison. The runs need it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from scripts.gigagpt import (
    BATCH_SIZE,
    LENGTH,
    SEQUENCES,
    STEPS,
    Outcome,
    have_equal_tensors,
    small_config,
    write_tokens,
)
from waferstream.checkpoint.writer import append_tensors, write_metadata


def test_config_is_that_of_the_checkout_at_a_small_size(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "111m.yaml").write_text(yaml.safe_dump({"width": 768, "backend": "X"}))
    config = small_config(tmp_path, tmp_path)
    assert (config["width"], config["backend"], config["dataset"]) == (32, "X", str(tmp_path))


def test_all_sequences_are_equal(tmp_path: Path) -> None:
    write_tokens(tmp_path)
    tokens = np.fromfile(tmp_path / "train.bin", np.uint16)
    assert len(tokens) == SEQUENCES * LENGTH + 1
    rows = np.lib.stride_tricks.sliding_window_view(tokens, LENGTH + 1)[::LENGTH]
    assert len(rows) % BATCH_SIZE == 0
    assert (rows == rows[0]).all()


def test_checkpoints_are_compared_bit_for_bit(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.mdl" for name in "abc"]
    for path, value in zip(paths, (1.0, 1.0, 2.0), strict=True):
        append_tensors(path, "model", {"w": np.ones(2, np.float32)})
        append_tensors(path, "optimizer", {"w.exp_avg": np.full(2, value, np.float32)})
        write_metadata(path, {})
    assert have_equal_tensors(paths[0], paths[1])
    assert not have_equal_tensors(paths[0], paths[2])
    assert not have_equal_tensors(paths[0], tmp_path / "absent.mdl")


def test_a_run_is_good_if_its_rest_is_repeated() -> None:
    losses = tuple(float(STEPS - step) for step in range(STEPS))
    good = Outcome(losses, losses[STEPS // 2 :], 1.0, are_equal=True)
    assert good.is_good
    assert not replace(good, resumed=losses[1 + STEPS // 2 :]).is_good
    assert not replace(good, evaluation=None).is_good
    assert not replace(good, losses=losses[::-1]).is_good
