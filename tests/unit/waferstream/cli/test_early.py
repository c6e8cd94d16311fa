"""What is wrong with a run that is told before torch is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from waferstream.cli.app import MEANT
from waferstream.cli.main import main

PARAMS = Path(__file__).resolve().parents[4] / "params.yaml"


def told(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command line that is refused prints."""
    try:
        code = main(words.split())
    except SystemExit as end:
        code = int(str(end.code))
    assert code in (1, 2)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--num_csx 32", "[batch-below-systems]"),
        ("--num_csx 4.5", "a whole number; got '4.5'"),
        ("--num_csx 0", "rule: greater than 0"),
        ("--model.name gpt5", "did you mean 'gpt3'?"),
        ("--model.num_heads 3", "num_heads must divide hidden_size, which is 256"),
        ("--train_dataloader.path nowhere", "[data-file-not-found]"),
        ("--fit.ckpt_path nowhere.mdl", "[checkpoint-not-readable]"),
        ("--model_dir params.yaml", "[model-dir-not-writable]"),
        ("--loop.max_steps many", "rule: a whole number"),
    ],
    ids=["batch", "fraction", "none", "name", "heads", "data", "checkpoint", "folder", "steps"],
)
def test_wrong_run_is_refused_and_leaves_nothing(
    flags: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "params.yaml").write_bytes(PARAMS.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert expected in told(f"train params.yaml {flags}", capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n\tb: 1\n", "line 2, column 1"),
        ("a:\n  b: 1\n   c: 2\n", "by the same number of spaces"),
        ("a: *b\n", "undefined alias"),
    ],
    ids=["tab", "indentation", "alias"],
)
def test_file_that_is_no_yaml_is_told_by_its_line(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    assert expected in told(f"train {path}", capsys)


@pytest.mark.parametrize("content", [b"\x89HDF\r\n\x1a\n", b"PK\x03\x04\xff"], ids=["mdl", "zip"])
def test_checkpoint_in_place_of_params_is_told(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "checkpoint_1.mdl"
    path.write_bytes(content)
    assert "--checkpoint_path" in told(f"train {path}", capsys)


def test_key_of_another_section_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("system: CS-3\n")
    assert "machine.system" in told(f"simulate {PARAMS} --cluster {cluster}", capsys)


@pytest.mark.parametrize("word", ["plan", "report", "predict"])
def test_word_that_is_no_command_is_answered_with_one(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"waferstream {MEANT[word]}" in told(f"{word} params.yaml", capsys)


def test_command_without_params_is_answered_with_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "waferstream train params.yaml" in told("train", capsys)
