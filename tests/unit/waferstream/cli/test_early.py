"""What is wrong with a run that is told before torch is imported."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.cli import early
from waferstream.cli.app import MEANT
from waferstream.cli.main import main
from waferstream.host.files import replacing
from waferstream.training.checkpoints.changes import STATE
from waferstream.training.results.claim import claimed

PARAMS = Path(__file__).resolve().parents[4] / "params.yaml"


def told(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command line that is refused prints."""
    try:
        code = main(shlex.split(words))
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
        ("--model_dir ''", "write . for this folder"),
        ("--loop.max_steps many", "rule: a whole number"),
    ],
    ids=[
        *("batch", "fraction", "none", "name", "heads", "data", "checkpoint", "folder", "nothing"),
        "steps",
    ],
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
    ("name", "content", "flags", "expected"),
    [
        ("text.txt", b"", "--train_dataloader.path text.txt", "[text-empty]"),
        ("text.txt", b"z" * 999, "--train_dataloader.path text.txt", "[token-out-of-vocabulary]"),
        ("llama/config.json", b"{}", "--fit.ckpt_path llama", "llama is a folder"),
        ("llama.gguf", b"GGUF\3", "--fit.ckpt_path llama.gguf", "llama.gguf is a GGUF"),
        ("a.safetensors", b"\2" + bytes(7) + b"{}", "--fit.ckpt_path a.safetensors", "convert"),
        ("half.mdl", b"\x89HDF\r\n\x1a\n", "--fit.ckpt_path half.mdl", "[checkpoint-damaged]"),
    ],
    ids=["empty", "vocabulary", "folder", "gguf", "safetensors", "damaged"],
)
def test_file_that_does_not_fit_is_refused(
    name: str,
    content: bytes,
    flags: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert expected in told(f"train {PARAMS} --model.vocab_size 100 {flags}", capsys)
    assert not (tmp_path / "model_dir").exists()


def test_folder_of_another_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_dir").mkdir()
    with claimed(tmp_path / "model_dir"):
        assert "[model-dir-in-use]" in told(f"train {PARAMS}", capsys)


def test_model_of_other_sizes_than_its_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_dir").mkdir()
    with replacing(tmp_path / "model_dir" / "checkpoint_1.mdl") as partial:
        append_tensors(partial, "model", {})
        write_metadata(partial, {"global_step": 1, STATE: {"model.hidden_size": 32}})
    refusal = told(f"train {PARAMS}", capsys)
    assert "[run-changed]" in refusal
    assert "model.hidden_size: 256 (was 32)" in refusal


def test_full_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = SimpleNamespace(f_blocks=9, f_bavail=0, f_bfree=0, f_frsize=4096, f_files=0, f_ffree=0)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert "[disk-full]" in told(f"train {PARAMS} --model_dir {tmp_path / 'new'}", capsys)


def test_other_torch_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(early, "version", lambda _: "2.4.0")
    assert "[torch-not-tested]" in told(f"train {PARAMS}", capsys)


def test_ray_that_is_gone_is_told_by_the_variable_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("runtime: {kind: ray, address: auto}\n")
    refusal = told(f"train {PARAMS} --cluster {cluster}", capsys)
    assert "[ray-not-answering]" in refusal
    assert "or unset RAY_ADDRESS" in refusal


@pytest.mark.parametrize("words", ["serve nowhere", "generate params.yaml text", "serve x.gguf"])
def test_place_without_a_model_is_told(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "[nothing-to-serve]" in told(words, capsys)


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


@pytest.mark.parametrize("word", ["show", "predict", "chat"])
def test_word_that_is_no_command_is_answered_with_one(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"waferstream {MEANT[word]}" in told(f"{word} params.yaml", capsys)


def test_command_without_params_is_answered_with_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "waferstream train params.yaml" in told("train", capsys)


@pytest.mark.parametrize(
    ("words", "more"),
    [("--num_csx 0", True), ("--num_csx 32", False)],
    ids=["without", "with"],
)
def test_error_without_a_remedy_names_the_page_of_codes(
    words: str, more: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ("docs/troubleshooting.md" in told(f"train {PARAMS} {words}", capsys)) is more
