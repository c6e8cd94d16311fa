"""The benchmark of a full queue: turns and lists are measured while jobs come and go."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.full_queue import main


def test_turns_and_lists_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "full_queue.json"
    main(["--queued", "5", "--systems", "4", "--groups", "2", "--rounds", "3", "--json", str(path)])
    rounds = json.loads(path.read_text())["rounds"]
    assert set(rounds) == {"turn", "list"}
    assert all(each["processor"] > 0 for work in rounds.values() for each in work)
    assert len(rounds["turn"]) == 3
