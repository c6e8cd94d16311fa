"""The measurement of what non-zeros save, on a model small enough for a test."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks.sparsity.__main__ import main


def test_ninety_percent_zeros_save_bytes(tmp_path: Path) -> None:
    """At least 80 % of the bytes on links and 75 % of those stored."""
    threads = torch.get_num_threads()
    sizes = ["--width", "128", "--depth", "1", "--rows", "8", "--turns", "1"]
    try:
        main(["--json", str(tmp_path / "result.json"), *sizes])
    finally:
        torch.set_num_threads(threads)
    result = json.loads((tmp_path / "result.json").read_text())
    for link in result["links"]:
        assert link["saved_in_all"] > 0.8
    assert min(result["stored"]["saved"].values()) > 0.75
