"""Places of checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch

import cstorch
from cstorch.checkpoints import (
    VERSION_KEY,
    H5Reader,
    S3Writer,
    StorageDeleter,
    StorageReader,
    StorageWriter,
)
from tests.support.errors import raises
from waferstream.core.errors import CheckpointError
from waferstream.version import VERSION
from waferstream.workload.weight_files import write_checkpoint
from waferstream_compat.accepted.serializers import cache_deferred_tensors, use_external_link


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


def test_reader_says_who_has_written_a_file(tmp_path: Path) -> None:
    """As the vendor's command about checkpoints asks, through the import hook."""
    path = tmp_path / "checkpoint_1.mdl"
    write_checkpoint(path, {"weight": torch.ones(2)}, {"global_step": 1})
    kind = StorageReader.get_type(path)
    assert kind is H5Reader
    assert kind(path).global_metadata == {VERSION_KEY: VERSION}
    with cache_deferred_tensors(False), use_external_link(True):
        assert cstorch.load(path)["model"]["weight"].tolist() == [1.0, 1.0]


def test_object_stores_are_recognised_and_refused() -> None:
    assert S3Writer.is_valid_path("s3://bucket/key")
    assert not S3Writer.is_valid_path("model_dir/checkpoint_1.mdl")
    assert not StorageWriter.is_valid_path("s3://bucket/key")
    with raises(CheckpointError, "checkpoint-not-local"):
        StorageReader.path_exists("s3://bucket/key")
