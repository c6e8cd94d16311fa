"""A run that goes on under other conditions says which, or is refused."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.tiny_run import TINY, run_here, write_run
from waferstream.training.checkpoints.provenance import code_digest, file_digest

SHORT: dict[str, Any] = {"init__loop": {"max_steps": 1}, "init__checkpoint": {"steps": 1}}
LONGER: dict[str, Any] = {**SHORT, "init__loop": {"max_steps": 2}}
MODEL: dict[str, Any] = TINY["trainer"]["init"]["model"]


@pytest.fixture
def trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a checkpoint of one step."""
    code, _, err = run_here([*write_run(tmp_path, **SHORT), "--mode=train"], capsys)
    assert code == 0, err
    return tmp_path


def go_on(
    folder: Path, capsys: pytest.CaptureFixture[str], *flags: str, **changes: Any
) -> tuple[int, str, str]:
    """Run another step in the folder with other values."""
    written = write_run(folder, **{**LONGER, **changes})
    return run_here([*written, "--mode=train", *flags], capsys)


def test_other_settings_are_said(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seed, rate and betas; length, logs and systems change nothing and are not said."""
    optimizer = {"AdamW": {"lr": 0.02, "weight_decay": 0.1, "betas": [0.8, 0.9]}}
    code, out, err = go_on(trained, capsys, init__seed=1, init__optimizer=optimizer)
    assert code == 0, err
    assert "seed: 1 (was 0)" in out
    assert "optimizer.AdamW.lr: 0.02 (was 0.01)" in out
    assert "optimizer.AdamW.betas: [0.8, 0.9] (was [0.9, 0.999])" in out
    code, out, _ = go_on(
        trained, capsys, "--num_csx=2", init__seed=1, init__optimizer=optimizer,
        init__loop={"max_steps": 3}, init__logging={"log_steps": 3},
    )  # fmt: skip
    assert code == 0
    assert "Other values" not in out


def test_other_kernels_are_said(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have other bits. Without a compiler they stay eager, but another host may have one."""
    monkeypatch.setenv("CXX", "no-compiler")
    code, out, err = go_on(trained, capsys, "--runtime.engine.kernels=compiled")
    assert code == 0, err
    assert "runtime.engine.kernels: compiled (was nothing)" in out


def test_other_model_of_equal_shapes_is_refused(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless changes are allowed; dropout is a setting."""
    model = {**MODEL, "nonlinearity": "relu"}
    code, _, err = go_on(trained, capsys, init__model=model)
    assert code == 1
    assert "[run-changed]" in err
    assert "model.nonlinearity: relu (was gelu)" in err
    code, out, err = go_on(trained, capsys, "--allow_changes", init__model=model)
    assert code == 0, err
    assert "model.nonlinearity: relu (was gelu)" in out
    model["dropout_rate"] = 0.2
    code, out, err = go_on(trained, capsys, init__model=model, init__loop={"max_steps": 3})
    assert code == 0, err
    assert "model.dropout_rate: 0.2" in out


def test_other_data_is_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other bytes in the same file are other data; the same bytes elsewhere are not."""
    flags = [*write_run(trained, **LONGER), "--mode=train"]
    text = trained / "text.txt"
    text.write_bytes(text.read_bytes()[:-1] + b"x")
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "[run-changed]" in err
    assert "train_dataloader.path" in err
    (trained / "elsewhere").mkdir()
    moved = write_run(trained / "elsewhere", **LONGER)
    moved[-1] = f"--model_dir={trained / 'model_dir'}"
    code, out, err = run_here([*moved, "--mode=train"], capsys)
    assert code == 0, err
    assert "Other values" not in out


def test_named_checkpoint_of_another_run_is_compared(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights alone may go on with other data, as in fine-tuning."""
    flags = [
        f"--checkpoint_path={trained / 'model_dir' / 'checkpoint_1.mdl'}",
        f"--model_dir={trained / 'other'}",
    ]
    data = {**TINY["trainer"]["fit"]["train_dataloader"], "shuffle_seed": 9}
    code, _, err = go_on(trained, capsys, *flags, fit__train_dataloader=data)
    assert code == 1
    assert "train_dataloader.shuffle_seed: 9" in err
    flags.append("--load_checkpoint_states=model")
    code, out, err = go_on(trained, capsys, *flags, fit__train_dataloader=data)
    assert code == 0, err
    assert "train_dataloader.shuffle_seed: 9" in out


def test_code_of_the_user_counts_and_its_layout_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own_model_of_a_test.py"
    digests = []
    for text in ("A = 1\n", "# a comment\nA = 1\n\n", "A = 2\n"):
        file.write_text(text)
        __import__(file.stem)
        digests.append(code_digest([file.stem, "torch.nn", "json"]))
    del sys.modules[file.stem]
    assert digests[0] == digests[1] != digests[2]


def test_digest_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    """Wherever it lies; locks of loaders are no data."""
    digests = []
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file").write_bytes(content)
        digests.append(file_digest(tmp_path / name))
        (tmp_path / name / "x.lock").touch()
        assert file_digest(tmp_path / name) == digests[-1]
    assert digests[0] == digests[1] != digests[2]
    assert file_digest(tmp_path / "none") is None
