"""The benchmark of stores: every arm is measured beside its floor."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.stores import main


def test_every_arm_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "stores.json"
    main(["--workflows", "3", "--rounds", "1", "--json", str(path)])
    seconds = json.loads(path.read_text())["s"]
    assert set(seconds["read"]) == {"first", "again", "floor"}
    assert set(seconds["write"]) == {"note", "floor"}
