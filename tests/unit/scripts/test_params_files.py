"""params_files: accepted and refused files of a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import modelzoo
from scripts.params_files import main

GOOD = Path(modelzoo.__file__).parent / "params" / "gpt2_small.yaml"


def test_files_are_counted_by_what_validation_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "models" / "configs"
    folder.mkdir(parents=True)
    (folder / "good.yaml").write_text(GOOD.read_text(encoding="utf-8"))
    bad = yaml.safe_load(GOOD.read_text(encoding="utf-8"))
    bad["trainer"]["init"]["model"]["name"] = "no_such_model"
    (folder / "bad.yaml").write_text(yaml.safe_dump(bad))
    (folder / "other.yaml").write_text("vocab_size: 5\n")
    assert main(["--checkout", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("models/configs/bad.yaml: ")
    assert "unknown-model" in lines[0]
    assert lines[1:] == ["models/configs/good.yaml: accepted", "1 of 2 files are accepted"]


def test_folder_without_files_is_an_error(tmp_path: Path) -> None:
    assert main(["--checkout", str(tmp_path)]) == 1
