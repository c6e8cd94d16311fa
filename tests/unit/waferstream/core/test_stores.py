"""Folders in object stores: what is copied, and what a store that denies loses (nothing)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.errors import raises
from tests.support.host.object_store import object_store
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.core.stores import Store, local_folder, store_of

URL = "s3://bucket/runs/one"


@pytest.fixture(autouse=True)
def own_mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "state"))


@pytest.fixture
def files() -> Iterator[Any]:
    """The file system of a store on this host, with one bucket."""
    with object_store("bucket"):
        yield fsspec.filesystem("s3")


def mirrored(url: str = URL) -> Store:
    store = store_of(local_folder(url))
    assert store is not None
    return store


@pytest.mark.parametrize("url", [URL, Path(URL), "S3:/bucket/runs/one", f"{URL}/"])
def test_mirror_of_a_url_tells_it(url: Any) -> None:
    folder = local_folder(url)
    store = store_of(folder)
    assert store is not None
    assert store.url == URL
    assert local_folder(folder) == folder


@pytest.mark.parametrize("value", ["model_dir", Path("/data/s3"), None, 3])
def test_other_folders_are_in_no_store(value: Any) -> None:
    assert local_folder(value) is value
    assert not isinstance(value, Path) or store_of(value) is None


def test_mirror_stays_below_its_folder() -> None:
    assert local_folder("s3://../../etc").parts[-2:] == ("s3", "etc")


@pytest.mark.parametrize("denied", [False, True])
def test_what_a_run_writes_is_copied(files: Any, denied: bool) -> None:
    """Once; what a store denies stays, and the next copy takes it."""
    store = mirrored()
    store.check()
    store.pull(list)
    (store.mirror / "checkpoint_1.mdl").write_bytes(b"one")
    (store.mirror / ".partial").write_bytes(b"not complete")
    (store.mirror / "folder").mkdir()
    if denied:
        files.rm("bucket", recursive=True)
        with raises(CheckpointError, "store-denies"):
            store.push()
        files.mkdir("bucket")
    store.push()
    names = {Path(name).name for name in files.ls(URL, refresh=True)}
    assert names == {"checkpoint_1.mdl"}
    assert (store.mirror / "checkpoint_1.mdl").read_bytes() == b"one"
    (store.mirror / "checkpoint_1.mdl").unlink()
    (store.mirror / "checkpoint_2.mdl").write_bytes(b"two")
    store.push()
    assert {Path(name).name for name in files.ls(URL, refresh=True)} == {"checkpoint_2.mdl"}


def test_another_host_takes_what_is_asked_for(files: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        files.pipe_file(f"{URL}/{name}", name.encode())
    store = Store(URL, tmp_path)
    store.pull(lambda names: [name for name in names if name != "a"])
    assert [each.name for each in tmp_path.iterdir()] == ["b"]
    store.push()
    assert {Path(name).name for name in files.ls(URL, refresh=True)} == {"a", "b"}


def test_store_that_is_not_there_is_told(files: Any) -> None:
    del files
    store = mirrored("s3://none/one")
    store.mirror.mkdir(parents=True)
    (store.mirror / "checkpoint_1.mdl").write_bytes(b"one")
    for call in (store.check, store.push):
        with raises(CheckpointError, "store-denies"):
            call()
    assert (store.mirror / "checkpoint_1.mdl").exists()
    with raises(ConfigError, "store-not-known"):
        mirrored("nowhere://bucket/one").check()
