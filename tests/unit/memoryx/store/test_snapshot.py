"""A snapshot writes the values of one moment, however much they change while it is written."""

import errno
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memoryx.store import snapshot as snapshot_module
from memoryx.store.snapshot import CopyRoom, Snapshot
from waferstream.checkpoint import MODEL
from waferstream.checkpoint.parts import Part, has_parts, read_parts
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import reserve_tensors, write_metadata
from waferstream.core.program.program import TensorSpec
from waferstream.host import disk

SIZE = 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.mdl"


def snapshot_of(path: Path, tensors: Mapping[str, np.ndarray], **options: Any) -> Snapshot:
    """Return the snapshot of some parameters, one tensor each, not started."""
    keys = {name: f"{MODEL}.{name}" for name in tensors}
    specs = [TensorSpec(keys[name], array.shape, "float32") for name, array in tensors.items()]
    by_parameter = {name: {keys[name]: array} for name, array in tensors.items()}
    return Snapshot("wgt-0", path, by_parameter, reserve_tensors(path, specs), True, **options)


def completed(path: Path, snapshot: Snapshot) -> tuple[Reader, Part]:
    snapshot.wait()
    (part,) = read_parts(path, ["wgt-0"])
    write_metadata(path, {}, [part])
    return Reader(path), part


def test_changes_while_a_snapshot_is_written_do_not_reach_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, while, and after a part of a tensor is written, all tensors change."""
    tensors = {name: np.full(SIZE, value, np.float32) for value, name in enumerate("abc")}
    expected = {name: array.copy() for name, array in tensors.items()}
    write, moments = disk.write_at, 0

    def change_all() -> None:
        snapshot.protect(tensors.keys())
        for array in tensors.values():
            np.add(array, 100, out=array)

    def write_and_change(descriptor: int, chunk: np.ndarray, offset: int) -> None:
        nonlocal moments
        moments += 1
        half = len(chunk) // 2
        write(descriptor, chunk[:half], offset)
        if moments % 3 == 2:
            change_all()
        write(descriptor, chunk[half:], offset + half)

    monkeypatch.setattr(snapshot_module, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(disk, "write_at", write_and_change)
    snapshot = snapshot_of(path, tensors)
    snapshot.start()
    reader, part = completed(path, snapshot)
    reader.verify()
    for name, array in expected.items():
        assert (reader[f"{MODEL}.{name}"] == array).all()
        assert (tensors[name] != array).all()
    assert part.copied_bytes == 3 * SIZE * 4


def test_tensor_that_is_written_is_not_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is still to be written costs time and memory."""
    reached, go_on = threading.Event(), threading.Event()
    write = disk.write_at

    def pause(descriptor: int, chunk: np.ndarray, offset: int) -> None:
        write(descriptor, chunk, offset)
        if chunk[:4].view(np.float32)[0] == 1:  # of the second tensor
            reached.set()
            go_on.wait(10)

    monkeypatch.setattr(disk, "write_at", pause)
    tensors = {"a": np.zeros(SIZE, np.float32), "b": np.ones(SIZE, np.float32)}
    snapshot = snapshot_of(path, tensors)
    snapshot.start()
    assert reached.wait(10)
    snapshot.protect(["a", "b", "unknown"])
    go_on.set()
    _, part = completed(path, snapshot)
    assert part.copied_bytes == SIZE * 4
    snapshot.protect(["a"])  # after the end it does nothing


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named(path: Path, value: float) -> None:
    """A sum that overflows is none of them."""
    tensors = {name: np.full(SIZE, 3e38, np.float32) for name in "ab"}
    tensors["b"][SIZE // 2] = value
    snapshot = snapshot_of(path, tensors)
    snapshot.start()
    reader, part = completed(path, snapshot)
    assert part.not_finite == reader.not_finite == (f"{MODEL}.b",)


def test_full_disk_reaches_whoever_reads_the_report(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the thread is that of the save."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    snapshot = snapshot_of(path, {"a": np.zeros(SIZE, np.float32)})
    assert not has_parts(path, ["wgt-0"])
    monkeypatch.setattr(os, "pwrite", full)
    snapshot.start()
    snapshot.wait()
    assert has_parts(path, ["wgt-0"])
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        read_parts(path, ["wgt-0"])


def test_update_waits_for_the_writer_where_copies_have_no_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tensor that is waited for is written next, and no more than the limit is copied."""
    tensors = {name: np.full(SIZE, value, np.float32) for value, name in enumerate("abcd")}
    expected = {name: array.copy() for name, array in tensors.items()}
    reached, order = threading.Event(), list[int]()
    write = disk.write_at

    def note(descriptor: int, chunk: np.ndarray, offset: int) -> None:
        order.append(int(chunk[:4].view(np.float32)[0]))
        reached.set()
        while not snapshot._urgent and len(order) == 1:  # until somebody waits
            time.sleep(0.001)
        write(descriptor, chunk, offset)

    monkeypatch.setattr(disk, "write_at", note)
    snapshot = snapshot_of(path, tensors, room=CopyRoom(limit_bytes=SIZE * 4))
    snapshot.start()
    assert reached.wait(10)
    snapshot.protect(["b", "d"])
    for name in "bd":
        tensors[name] += 100
    reader, part = completed(path, snapshot)
    assert order == [0, 3, 1, 2]
    assert part.copied_bytes == SIZE * 4
    assert all((reader[f"{MODEL}.{name}"] == array).all() for name, array in expected.items())


def test_tensors_that_were_copied_ahead_cost_an_update_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has the values of the start, although every tensor changes before it is written."""
    reached, go_on = threading.Event(), threading.Event()
    write = disk.write_at

    def pause(descriptor: int, chunk: np.ndarray, offset: int) -> None:
        reached.set()
        go_on.wait(10)
        write(descriptor, chunk, offset)

    monkeypatch.setattr(disk, "write_at", pause)
    tensors = {name: np.full(SIZE, value, np.float32) for value, name in enumerate("abc")}
    snapshot = snapshot_of(path, tensors, copies_ahead=True)
    snapshot.start()
    assert reached.wait(10)
    snapshot.protect(tensors.keys())
    for array in tensors.values():
        np.add(array, 100, out=array)
    go_on.set()
    reader, part = completed(path, snapshot)
    assert part.copied_bytes == 0
    assert [reader[f"{MODEL}.{name}"][0] for name in "abc"] == [0, 1, 2]
