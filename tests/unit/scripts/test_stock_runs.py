"""stock_runs: the record of runs of a checkout's params files, and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import modelzoo
from scripts.stock_runs import families_first, main, recorded, table

GOOD = Path(modelzoo.__file__).parent / "params" / "gpt2_small.yaml"


@pytest.mark.nightly
def test_runs_are_recorded_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that trains shrunk and one that does not are in the record and in the table."""
    folder = tmp_path / "configs"
    folder.mkdir()
    section = yaml.safe_load(GOOD.read_text(encoding="utf-8"))
    (folder / "good.yaml").write_text(yaml.safe_dump(section))
    section["trainer"]["init"]["model"]["name"] = "no_such_model"
    (folder / "wrong.yaml").write_text(yaml.safe_dump(section))
    record = tmp_path / "runs.jsonl"
    words = ["--checkout", str(tmp_path), "--record", str(record), "--what", "train"]
    assert main(words) == 1
    good, wrong = recorded(record)
    assert (good["code"], len(good["losses"])) == (0, 2)
    assert "unknown-model" in wrong["error"]
    assert "train: 1 of 2 files ended well\n  1 unknown-model" in capsys.readouterr().out
    assert main(words) == 1
    assert len(recorded(record)) == 2


def test_the_first_of_every_family_comes_first() -> None:
    paths = [Path(name) for name in ("a/1", "a/2", "b/3", "b/4")]
    assert [str(path) for path in families_first(paths)] == ["a/1", "b/3", "a/2", "b/4"]


def test_table_counts_errors_by_code() -> None:
    def row(code: int, error: str) -> dict[str, Any]:
        return {"what": "simulate", "code": code, "error": error}

    rows = [row(0, ""), row(1, "Error: no [too-large]\n  where: x"), row(-1, "it died")]
    assert list(table(rows)) == [
        "simulate: 1 of 3 files ended well",
        "  1 too-large",
        "  1 exit code -1",
        "train: 0 of 0 files ended well",
    ]
