"""A crash at any boundary of a save leaves a folder that a run can continue from."""

import os
import shutil
import sys
import threading
from collections.abc import Callable, Set
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

from appliance.checkpoints.folder import CheckpointFolder
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from waferstream.checkpoint import MODEL
from waferstream.checkpoint.parts import read_parts, remove_parts
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import (
    append_links,
    append_tensors,
    reserve_tensors,
    write_metadata,
)
from waferstream.core.program.program import TensorSpec

SYSTEM_CALLS = frozenset(["pwrite", "fsync", "posix_fallocate", "replace", "unlink"])
"""Names of functions that write to, flush, rename or remove a file on the way of a save."""

ALL_CALLS = SYSTEM_CALLS | frozenset(
    [
        "open",
        "FileIO",
        "write",
        "write_bytes",
        "write_text",
        "close",
        "flush",
        "flock",
        "rename",
        "mkdir",
        "create",
        "create_dataset",
        "__setitem__",
        "start",
    ]
)
"""The same with all functions of Python and h5py that lead there."""

DIED = 9


def save(folder: CheckpointFolder, server: Persistence, step: int) -> None:
    """Save as a coordinator does: buffers and links, a server's tensors, and the metadata."""
    with folder.draft(step) as draft:
        append_tensors(draft.partial, MODEL, {"buffer": np.full(2, step)})
        append_links(draft.partial, MODEL, {"tied": "w"})
        offsets = reserve_tensors(draft.partial, server.layout(["model"]))
        server.save(draft.partial, offsets, is_background=False)
        server.finish_saving()
        write_metadata(draft.partial, {"step": step}, read_parts(draft.partial, ["wgt-0"]))
        remove_parts(draft.partial, ["wgt-0"])


def dying(at: int, calls: Set[str]) -> Callable[[FrameType, str, Any], None]:
    """Return a profiler that ends the process at the boundary of this number, from 0."""
    passed = 0

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal passed
        of_c = event.startswith("c_")
        if (arg.__name__ if of_c else frame.f_code.co_name) in calls:
            if passed == at:
                os._exit(DIED)
            passed += 1

    return profile


def survives(folder: CheckpointFolder, server: Persistence, at: int, calls: Set[str]) -> bool:
    """Save step 2 in a child that dies at a boundary; return whether it came to its end."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != DIED
    try:
        profile = dying(at, calls)
        threading.setprofile(profile)
        sys.setprofile(profile)
        save(folder, server, 2)
    finally:
        os._exit(0)


@pytest.mark.parametrize(
    ("calls", "at_least"),
    [
        pytest.param(SYSTEM_CALLS, 15, id="system calls"),
        pytest.param(ALL_CALLS, 100, id="all calls", marks=pytest.mark.nightly),
    ],
)
def test_crash_at_every_boundary_of_a_save_leaves_a_good_checkpoint(
    tmp_path: Path, calls: Set[str], at_least: int
) -> None:
    """The newest one is whole, nothing incomplete stays, and the next save succeeds."""
    store = WeightStore([TensorSpec("w", (3,), "float32")])
    store.fill({"w": torch.ones(3)})
    server = Persistence(store, "wgt-0")
    before = tmp_path / "before"
    save(CheckpointFolder(before, keep=1), server, 1)
    found, boundary = [], 0
    while True:
        path = tmp_path / str(boundary)
        shutil.copytree(before, path)
        folder = CheckpointFolder(path, keep=1)
        has_ended = survives(folder, server, boundary, calls)
        newest = folder.newest()
        assert newest is not None, f"boundary {boundary}"
        reader = Reader(newest)
        found.append(reader.objects["step"])
        assert reader["model.tied"].tolist() == [1, 1, 1]
        assert reader["model.buffer"].tolist() == [found[-1]] * 2
        folder.prepare()
        assert not list(path.glob(".*partial*")), f"boundary {boundary}"
        if boundary % 10 == 0:
            save(folder, server, 3)
            assert Reader(folder.path / "checkpoint_3.mdl").objects["step"] == 3
        if has_ended:
            break
        boundary += 1
    assert boundary >= at_least, "every write, flush, rename and removal is a boundary"
    assert found == sorted(found), "before the rename the old one, from then on the new one"
    assert set(found) == {1, 2}
