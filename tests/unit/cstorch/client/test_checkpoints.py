"""Places of checkpoints."""

from __future__ import annotations

from pathlib import Path

from cstorch.client.checkpoints import S3Writer, StorageDeleter, StorageReader, StorageWriter
from tests.support.errors import raises
from wsc.core.errors import CheckpointError


def test_files_are_found_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint_1.mdl"
    assert StorageWriter.is_valid_path(path)
    assert not StorageWriter.path_exists(path)
    path.write_bytes(b"abc")
    reader = StorageReader.get(path)
    assert isinstance(reader, StorageReader)
    assert reader.stats.st_size == 3
    deleter = StorageDeleter.get(str(path))
    assert isinstance(deleter, StorageDeleter)
    deleter.delete()
    assert not StorageReader.path_exists(path)


def test_object_stores_are_recognised_and_refused() -> None:
    assert S3Writer.is_valid_path("s3://bucket/key")
    assert not S3Writer.is_valid_path("model_dir/checkpoint_1.mdl")
    assert not StorageWriter.is_valid_path("s3://bucket/key")
    with raises(CheckpointError, "checkpoint-not-local"):
        StorageReader.path_exists("s3://bucket/key")
