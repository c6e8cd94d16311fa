"""``waferstream ctl what-if``: jobs of a trace on another appliance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.host.tools import rows, tool
from waferstream.cli.tools.ctl.tables import duration

ANDROMEDA = "deploy/inventories/andromeda.yaml"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace of four jobs of an hour on 16 systems each, in the format of SWF."""
    line = "{number} 0 -1 3600 16 -1 -1 16 3600 -1 1 1 1 -1 -1 -1 -1 -1\n"
    path = tmp_path / "trace.swf"
    path.write_text("".join(line.format(number=number) for number in range(1, 5)))
    return path


def test_waits_on_an_inventory_are_told(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, where no job breathes."""
    words = ("--inventory", ANDROMEDA, "--trace", trace, "--fixed_sizes")
    (row,) = rows(capsys, "ctl", "what-if", *words)
    assert (row["SYSTEMS"], row["MEAN WAIT"]) == ("16", duration(1.5 * 3600))
    assert (row["LONGEST WAIT"], row["UTILISATION"]) == (duration(3 * 3600), "100%")


def test_fewest_systems_are_found(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--inventory", ANDROMEDA, "--trace", trace, "--mean_wait_h", 100)
    tried = rows(capsys, "ctl", "what-if", *words)
    assert [int(row["SYSTEMS"]) for row in tried] == sorted(int(row["SYSTEMS"]) for row in tried)
    assert int(tried[0]["SYSTEMS"]) < 16


def test_without_an_inventory_nothing_is_simulated(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "[missing-key]" in tool(capsys, "ctl", "what-if", "--trace", trace, code=1)
