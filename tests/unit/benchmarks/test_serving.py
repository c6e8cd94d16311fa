"""The benchmark of serving runs on a tiny model and writes its ratios."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.serving.__main__ import main
from tests.support.runs.served_folder import train_decoder


def test_main_measures_every_arm(tmp_path: Path) -> None:
    folder, path = train_decoder(tmp_path), tmp_path / "serving.json"
    words = ["--sizes", "tiny", "--tokens", "2", "--repeats", "1", "--streams", "3"]
    assert main([*words, "--place", str(folder), "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    (decoding,) = found["decoding"]
    for by_users in decoding["ratios"].values():
        assert all(ratio > 0 for trials in by_users.values() for ratio in trials)
    assert found["over_http"]["streams"] == 3
