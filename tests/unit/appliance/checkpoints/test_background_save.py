"""A background save ends, whatever becomes of the servers that write it."""

import threading
from pathlib import Path

import numpy as np

from appliance.checkpoints.background_save import BackgroundSave
from tests.support.errors import raises
from waferstream.checkpoint.parts import Part, part_path, write_part
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import append_tensors
from waferstream.core.errors import CheckpointError


def test_file_is_complete_when_the_last_server_has_reported(tmp_path: Path) -> None:
    """The reports are gone then."""
    path = tmp_path / "c.mdl"
    append_tensors(path, "model", {"w": np.ones(3, np.float32)})
    save = BackgroundSave(path, ["wgt-0", "wgt-1"], {"global_step": 3})
    thread = threading.Thread(target=save.complete)
    thread.start()
    write_part(path, "wgt-0", Part())
    assert not save.wait_for_servers(0.05)
    write_part(path, "wgt-1", Part())
    assert save.wait_for_servers(10) or not thread.is_alive()
    thread.join(10)
    assert Reader(path).objects == {"global_step": 3}
    assert list(tmp_path.iterdir()) == [path]


def test_abandoned_save_does_not_wait_for_a_dead_server(tmp_path: Path) -> None:
    """One that has reported everything is completed all the same."""
    path = tmp_path / "c.mdl"
    append_tensors(path, "model", {"w": np.ones(3, np.float32)})
    save = BackgroundSave(path, ["wgt-0"], {})
    save.abandon()
    with raises(CheckpointError, "checkpoint-abandoned"):
        save.complete()
    write_part(path, "wgt-0", Part())
    save.complete()
    assert not part_path(path, "wgt-0").exists()
    Reader(path).verify()
