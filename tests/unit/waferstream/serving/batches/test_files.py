"""The folder of files: what is kept, what is not, and whose it is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.serving.batches import files
from waferstream.serving.batches.files import FileStore, files_folder


def test_files_are_found_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    kept = store.add(io.BytesIO(b"{}"), "asked.jsonl")
    (tmp_path / "file-damaged.json").write_text("{")
    (tmp_path / "file-other.json").write_text(kept.model_dump_json())
    assert FileStore(tmp_path).all() == [kept]
    store.delete(kept.id)
    assert FileStore(tmp_path).all() == []


def test_long_name_is_cut(tmp_path: Path) -> None:
    assert len(FileStore(tmp_path).add(io.BytesIO(b"{}"), "x" * 10_000).filename) == 255


def test_full_disk_leaves_nothing(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(28, "No space left on device")

    store = FileStore(tmp_path)
    with pytest.raises(OSError, match="space"):
        store.add(Broken(), "asked.jsonl")
    assert not list(tmp_path.iterdir())
    assert store.all() == []


def test_files_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FOLDER_BYTES", files.FILE_BYTES + 10)
    store = FileStore(tmp_path)
    store.add(io.BytesIO(b"x" * 11), "a")
    with raises(ConfigError, "files-full"):
        store.add(io.BytesIO(b"x"), "b")


def test_folder_belongs_to_one_service(tmp_path: Path) -> None:
    with files_folder(tmp_path / "a" / "b") as folder:
        assert folder.stat().st_mode & 0o77 == 0
        with raises(ConfigError, "files-folder-not-usable"), files_folder(folder):
            pass
    with files_folder(folder):
        pass
    (tmp_path / "file").touch()
    with raises(ConfigError, "files-folder-not-usable"), files_folder(tmp_path / "file"):
        pass


def test_private_folder_ends_with_the_service() -> None:
    with files_folder(None) as folder:
        assert folder.stat().st_mode & 0o77 == 0
        (folder / "file-a.jsonl").touch()
    assert not folder.exists()
