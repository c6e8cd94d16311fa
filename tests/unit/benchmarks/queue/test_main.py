"""The benchmark of the queue, on a few jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.queue import __main__ as queue
from benchmarks.queue.__main__ import main


def test_arms_stand_beside_easy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "measure_decisions", dict)
    trace = tmp_path / "trace.swf"
    trace.write_text(
        "\n".join(
            f"{n} {50 * n} -1 {100 + 700 * (n % 5)} {1 + n % 8} -1 -1 -1 -1 -1 -1 {n % 3} 1 -1"
            for n in range(60)
        )
    )
    assert main(["--trace", str(trace), "--groups", "4", "--json", str(tmp_path / "out.json")]) == 0
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["systems"] == 8
    assert result["jobs"] == 60
    arms = result["arms"]
    assert list(arms) == ["breathing", "off", "fixed"]
    assert arms["fixed"]["resizes"] == arms["fixed"]["pauses"] == 0
    for arm in arms.values():
        ratio = arm["mean_wait_s"] / result["easy"]["mean_wait_s"]
        assert arm["beside_easy"]["mean_wait_s"] == pytest.approx(ratio)


def test_what_is_no_trace_ends_with_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", str(tmp_path / "none.swf")]) == 1
    assert "[trace-not-readable]" in capsys.readouterr().err
