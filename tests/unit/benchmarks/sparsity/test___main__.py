"""The measurement of what non-zeros save, on a model small enough for a test."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks.sparsity.__main__ import emulated_speed_up, main


def test_ninety_percent_zeros_save_bytes(tmp_path: Path) -> None:
    """At least 80 % of the bytes on links and 75 % of those stored; the picture is written."""
    threads = torch.get_num_threads()
    sizes = ["--width", "128", "--depth", "2", "--rows", "8", "--turns", "1"]
    picture = tmp_path / "speed_up.png"
    try:
        main(["--json", str(tmp_path / "result.json"), "--picture", str(picture), *sizes])
    finally:
        torch.set_num_threads(threads)
    result = json.loads((tmp_path / "result.json").read_text())
    for link in result["links"]:
        assert link["saved_in_all"] > 0.8
    assert min(result["stored"]["saved"].values()) > 0.75
    assert picture.stat().st_size > 1000


def test_emulated_speed_up_grows_with_zeros_and_stays_below_the_ideal() -> None:
    points = emulated_speed_up(4096, 20_000)
    speeds = [point["speed_up"] for point in points]
    assert speeds == sorted(speeds)
    assert speeds[0] == 1.0
    assert all(point["error"] <= 0 for point in points)
