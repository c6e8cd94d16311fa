"""The files of a run: its log, its configuration, the link to the newest."""

import logging
from contextlib import closing
from pathlib import Path

import pytest

from appliance.spec import ClusterSpec
from tests.support.disks import full_disk
from tests.support.errors import raises
from tests.support.tiny_run import write_run
from waferstream.config.params import load_params
from waferstream.training.run_folder import RunFolder
from wsc.core.errors import ConfigError

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
    """Whether it is a line of the log or the configuration, of which no part is left."""
    write_run(tmp_path)
    params = load_params(tmp_path / "params.yaml")
    with closing(RunFolder(tmp_path)) as folder:
        with full_disk(), pytest.raises(OSError, match=r"run\.log"):
            log.warning("the disk is full")
        with full_disk(), pytest.raises(OSError, match=r"trainer_params\.yaml"):
            folder.save_configuration(params, ClusterSpec())
    assert [path.name for path in folder.path.iterdir()] == ["run.log"]
