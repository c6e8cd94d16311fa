"""The measurement of what non-zeros save, on a model small enough for a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.sparsity import __main__ as command
from benchmarks.sparsity.__main__ import main


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Give the other tests of this process the number of threads that they had."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_ninety_percent_zeros_save_bytes(tmp_path: Path) -> None:
    """At least 80 % of the bytes on links and 75 % of those stored."""
    sizes = ["--width", "128", "--depth", "1", "--rows", "8", "--turns", "1"]
    main(["--json", str(tmp_path / "result.json"), *sizes])
    result = json.loads((tmp_path / "result.json").read_text())
    for link in result["links"]:
        assert link["saved_in_all"] > 0.8
    assert min(result["stored"]["saved"].values()) > 0.75


def test_result_is_printed_without_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command of the README names no file."""
    monkeypatch.setattr(command, "measure_format", lambda _elements: [])
    monkeypatch.setattr(command, "measure_links", lambda *_sizes: [])
    monkeypatch.setattr(command, "measure_stored", lambda *_sizes: {"saved": {"memoryx": 0.5}})
    main(["--rows", "8"])
    assert "memoryx 50.0%" in capsys.readouterr().out
