"""The files of a run: its log, its configuration, the link to the newest."""

import errno
import fcntl
import logging
import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.faults.strike import full_disk
from appliance.spec import ClusterSpec
from memoryx.store.store import WeightStore
from tests.support.errors import raises
from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.training.results import files
from waferstream.training.results.claim import claimed
from waferstream.training.results.run_folder import RunFolder

log = logging.getLogger("waferstream")


def test_the_newest_log_can_be_found(tmp_path: Path) -> None:
    """Every run has a log of its own; a link leads to that of the last."""
    for number in (1, 2):
        with closing(RunFolder(tmp_path)) as folder:
            log.warning("run %d", number)
            folder.note("a progress line")
    text = (tmp_path / "latest_run.log").read_text()
    assert "run 2" in text
    assert "a progress line" in text
    assert "run 1" not in text
    assert len(list(tmp_path.glob("*/run.log"))) == 2


def test_runs_in_the_same_millisecond_have_a_folder_each(tmp_path: Path) -> None:
    """However fast one begins after the other."""
    for _ in range(30):
        RunFolder(tmp_path).close()
    assert len(list(tmp_path.glob("*/run.log"))) == 30


def test_the_saved_configuration_starts_the_same_run(tmp_path: Path) -> None:
    """With every default written out."""
    write_run(tmp_path)
    params = load_params(tmp_path / "params.yaml")
    with closing(RunFolder(tmp_path)) as folder:
        folder.save_configuration(params, ClusterSpec())
    assert load_params(folder.path / "trainer_params.yaml") == params


def test_log_line_that_cannot_be_written_ends_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal says so, once."""
    with closing(RunFolder(tmp_path)) as folder, full_disk(0):
        for _ in range(3):
            log.warning("a line")
        folder.note("a progress line")
    assert capsys.readouterr().err.count("The run goes on") == 1


def test_two_runs_cannot_train_in_one_folder(tmp_path: Path) -> None:
    """The second is refused while the first one runs, not afterwards."""

    def claim() -> None:
        with claimed(tmp_path):
            pass

    with claimed(tmp_path), raises(ConfigError, "model-dir-in-use") as caught:
        claim()
    assert str(os.getpid()) in str(caught.value.value)
    claim()
    assert not list(tmp_path.iterdir())


def test_lock_of_a_stranger_on_the_folder_keeps_no_run_out(tmp_path: Path) -> None:
    """Whoever can read a folder can lock it."""
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with claimed(tmp_path):
            pass
    finally:
        os.close(folder)


def test_evaluation_of_a_read_only_folder_writes_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is added to it, and the weights are those of its newest checkpoint."""
    flags = write_run(tmp_path, init__loop={"max_steps": 2, "eval_steps": 1})
    code, out, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 0, err
    model_dir = tmp_path / "model_dir"
    before = sorted(model_dir.rglob("*"))
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != model_dir)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())
    trainer = params["trainer"]
    trainer["validate"] = {"val_dataloader": trainer["fit"]["val_dataloader"]}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    code, again, err = run_here([*flags, "--mode=eval"], capsys)
    assert code == 0, err
    assert digest_of(again) == digest_of(out)
    assert sorted(model_dir.rglob("*")) == before
    assert list(tmp_path.glob("waferstream-*/run_summary.json"))


def test_hash_is_printed_when_no_result_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training was done; the error says what is missing."""

    def full(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "run_summary.json")

    monkeypatch.setattr(files, "write_results", full)
    flags = write_run(tmp_path, init__loop={"max_steps": 1})
    code, out, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 1
    assert digest_of(out)
    assert os.strerror(errno.EROFS) in err


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    """Before anything is trained."""
    (tmp_path / "file").touch()
    with raises(ConfigError, "model-dir-not-writable"):
        RunFolder(tmp_path / "file" / "model_dir")


def test_a_folder_that_is_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    """Instead of trying one name after the other."""
    (tmp_path / "model_dir").symlink_to(tmp_path / "nowhere")
    with raises(ConfigError, "model-dir-not-writable"):
        RunFolder(tmp_path / "model_dir")


def test_a_full_disk_ends_the_run_with_the_name_of_the_file(tmp_path: Path) -> None:
    """That of the configuration, of which no part is left."""
    write_run(tmp_path)
    params = load_params(tmp_path / "params.yaml")
    with (
        closing(RunFolder(tmp_path)) as folder,
        full_disk(0),
        pytest.raises(OSError, match=r"trainer_params\.yaml"),
    ):
        folder.save_configuration(params, ClusterSpec())
    assert [path.name for path in folder.path.iterdir()] == ["run.log"]


def test_run_on_a_full_disk_ends_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the start, before anything is trained."""
    flags = write_run(tmp_path)
    with full_disk(0):
        code, _, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 1
    assert "[disk-full]" in err
    assert "remedy: " in err


def test_run_without_its_folder_ends_with_a_typed_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has removed it."""
    flags = write_run(tmp_path, init__loop={"max_steps": 2}, init__checkpoint={"steps": 0})
    update = WeightStore.update

    def remove(self: WeightStore, gradients: Any, step: int) -> None:
        shutil.rmtree(tmp_path / "model_dir", ignore_errors=True)
        update(self, gradients, step)

    monkeypatch.setattr(WeightStore, "update", remove)
    code, _, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 1
    assert "[file-gone]" in err
    assert "remedy: " in err


def test_pipe_in_the_folder_is_not_awaited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither as the index of checkpoints nor as the history of losses nor as a checkpoint."""
    flags = write_run(tmp_path, init__loop={"max_steps": 2})
    (tmp_path / "model_dir").mkdir()
    for name in ("checkpoints_index.yaml", "checkpoint_9.mdl"):
        os.mkfifo(tmp_path / "model_dir" / name)
    code, _, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 0, err
    os.mkfifo(tmp_path / "model_dir" / "history")
    (tmp_path / "model_dir" / "history").rename(tmp_path / "model_dir" / "history.jsonl")
    flags = [*flags, "--mode=train", "--max_steps=3"]
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "history.jsonl" in err
    for flag in ("--checkpoint_path", "--params"):
        os.mkfifo(tmp_path / flag)
        code, _, _ = run_here([*flags, f"{flag}={tmp_path / flag}"], capsys)
        assert code == 1


def test_empty_name_of_the_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be the current folder."""
    code, _, err = run_here([*write_run(tmp_path), "--model_dir="], capsys)
    assert code == 1
    assert "'trainer.init.model_dir'" in err
