"""Files of another host, with tasks that run here at once."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray

from appliance.ray.hosts import far_disk
from appliance.ray.hosts.far_disk import FarDisk


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tasks that were started."""
    started: list[str] = []

    def remote(**_: Any) -> Callable[..., Any]:
        def wrap(function: Callable[..., Any]) -> Any:
            def start(*args: Any) -> Any:
                started.append(function.__name__)
                return function(*args)

            return SimpleNamespace(remote=start)

        return wrap

    monkeypatch.setattr(ray, "remote", remote)
    monkeypatch.setattr(ray, "get", lambda result: result)
    monkeypatch.setattr(far_disk, "task_options", lambda _: {})
    return started


@pytest.mark.parametrize(("most_bytes", "num_tasks"), [(1000, 1), (100, 3), (7, 31)])
def test_small_tensors_share_a_task(
    tmp_path: Path,
    tasks: list[str],
    monkeypatch: pytest.MonkeyPatch,
    most_bytes: int,
    num_tasks: int,
) -> None:
    """However many there are: a task takes up to a second on a busy host."""
    monkeypatch.setattr(far_disk, "_CHUNK_BYTES", most_bytes)
    path = tmp_path / "file"
    path.write_bytes(bytes(240))
    tensors = np.arange(240, dtype=np.uint8).reshape(30, 8)
    with FarDisk("there").writing(path) as file:
        for index in (*range(0, 30, 2), *range(1, 30, 2)):
            file.write(tensors[index], 8 * index)
    assert path.read_bytes() == tensors.tobytes()
    assert len(tasks) == num_tasks


@pytest.mark.parametrize(("most_bytes", "num_tasks"), [(241, 1), (240, 2), (100, 3)])
def test_small_file_is_read_by_one_task(
    tmp_path: Path,
    tasks: list[str],
    monkeypatch: pytest.MonkeyPatch,
    most_bytes: int,
    num_tasks: int,
) -> None:
    monkeypatch.setattr(far_disk, "_CHUNK_BYTES", most_bytes)
    content = np.random.default_rng(0).bytes(240)
    (tmp_path / "file").write_bytes(content)
    with FarDisk("there").local(tmp_path / "file") as copy:
        assert copy.read_bytes() == content
    assert len(tasks) == num_tasks
    assert not copy.exists()
