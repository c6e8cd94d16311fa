"""Event files: scalars are in the file after a flush, and errors name the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.faults.strike import full_disk
from tests.support.files.event_files import events, scalars
from waferstream.training.observers.events import EventWriter


def test_event_writer_writes_scalars_on_close(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalar("train/loss", 2.5, 10)
    writer.scalar("eval/loss", 3.5, 20)
    writer.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    assert scalars(path) == [("train/loss", 2.5, 10), ("eval/loss", 3.5, 20)]


def test_event_writer_flushes_during_a_run(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "made" / "here")
    writer.scalar("train/loss", 2.5, 10)
    writer.flush()
    (path,) = tmp_path.rglob("events.out.tfevents.*")
    assert [event.step for event in events(path)] == [0, 10]
    writer.close()


def test_event_writer_names_the_folder_of_a_full_disk(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalar("train/loss", 2.5, 10)
    with full_disk(0), pytest.raises(OSError, match=tmp_path.name):
        writer.flush()
    writer.close()
