"""Several HDF5 files are one dataset, read in the configured order."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modelzoo.data.files.hdf5_samples import parse_subset
from modelzoo.data.language.hdf5 import GptHDF5MapDataProcessor
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, DataError
from waferstream.core.program.program import Loading
from waferstream.workload.data import BatchSource, build_source


def write_samples(path: Path, first: int, count: int, length: int = 4) -> None:
    """Sequences whose tokens are the number of the sequence, counted over all files."""
    data = np.zeros((count, 3, length), dtype=np.int32)
    data[:, 0] = np.arange(first, first + count)[:, None]
    data[:, 1], data[:, 2] = 1, 7
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file["data"] = data


def open_hdf5(data_dir: object, **keys: object) -> BatchSource:
    defaults = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": data_dir, "batch_size": 5}
    return GptHDF5MapDataProcessor.model_validate(defaults | keys).source()


def numbers(source: BatchSource, step: int) -> list[int]:
    return source.batch(step)["input_ids"][:, 0].tolist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten sequences in three files, one of them empty."""
    write_samples(tmp_path / "a.h5", 0, 4)
    write_samples(tmp_path / "b.h5", 4, 0)
    write_samples(tmp_path / "c.h5", 4, 6)
    return tmp_path


def test_files_are_one_dataset(folder: Path) -> None:
    """Batches cross the borders of files, and of epochs."""
    source = open_hdf5(str(folder))
    assert len(source) == 2
    assert [numbers(source, step) for step in range(3)] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [0, 1, 2, 3, 4],
    ]


def test_loading_is_that_of_an_hdf5_loader(folder: Path) -> None:
    """With the requested processes and the number of existing files."""
    loading = open_hdf5(str(folder), num_workers=8).loading
    assert loading == Loading("hdf5", num_workers=8, num_files=3)


def test_loading_does_not_count_missing_files(tmp_path: Path) -> None:
    """A simulation reads ``loading`` without data; opening the source fails."""
    section = {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 5}
    missing = GptHDF5MapDataProcessor.model_validate({**section, "data_dir": str(tmp_path / "no")})
    assert missing.loading == Loading("hdf5")
    with pytest.raises(DataError):
        missing.source()


def test_batches_have_the_form_of_next_token_batches(folder: Path) -> None:
    """Contiguous int64 for any integer type of the file."""
    batch = open_hdf5(str(folder)).batch(0)
    assert list(batch) == ["input_ids", "attention_mask", "labels"]
    assert batch["attention_mask"].unique().tolist() == [1]
    assert batch["labels"].unique().tolist() == [7]
    for tensor in batch.values():
        assert tensor.shape == (5, 4)
        assert tensor.dtype == torch.int64
        assert tensor.is_contiguous()


def test_shuffling_reads_each_sequence_once(folder: Path) -> None:
    """Not in the order of the files."""
    source = open_hdf5(str(folder), shuffle=True)
    epoch = numbers(source, 0) + numbers(source, 1)
    assert epoch != sorted(epoch)
    assert sorted(epoch) == list(range(10))


def test_files_of_several_folders(tmp_path: Path) -> None:
    """Sorted all together, or folder after folder as listed."""
    write_samples(tmp_path / "x" / "a.h5", 0, 5)
    write_samples(tmp_path / "y" / "a.h5", 5, 5)
    folders = [str(tmp_path / "y"), str(tmp_path / "x")]
    assert numbers(open_hdf5(folders), 0) == [0, 1, 2, 3, 4]
    assert numbers(open_hdf5(folders, sort_files=False), 0) == [5, 6, 7, 8, 9]


def test_data_subset_takes_parts(folder: Path) -> None:
    """The parts in order, as one dataset without the rest."""
    source = open_hdf5(str(folder), data_subset="0.1-0.3,0.7-1.0")
    assert len(source) == 1
    assert numbers(source, 0) == [1, 2, 7, 8, 9]


@given(st.lists(st.integers(0, 100), min_size=2, max_size=8, unique=True).map(sorted))
def test_parse_subset_returns_the_ranges(percents: list[int]) -> None:
    """For any rising list of ranges."""
    ends = [percent / 100 for percent in percents[: len(percents) // 2 * 2]]
    ranges = tuple(zip(ends[::2], ends[1::2], strict=True))
    assert parse_subset(",".join(f"{start}-{stop}" for start, stop in ranges)) == ranges


@pytest.mark.parametrize("text", ["", "0.5", "0.5-0.2", "0.2-0.2", "0-2", "0-0.5,0.4-1", "a-b"])
def test_wrong_data_subset_is_refused(text: str) -> None:
    """When the configuration is read, before any file is opened."""
    with pytest.raises(ConfigError):
        open_hdf5("nowhere", data_subset=text)


def test_different_sequence_lengths_are_refused(folder: Path) -> None:
    """The error names two files that disagree."""
    write_samples(folder / "d.h5", 0, 2, length=8)
    with raises(DataError, "sequence-lengths-differ") as caught:
        open_hdf5(str(folder))
    assert caught.value.where == f"{folder / 'a.h5'}, {folder / 'd.h5'}"


def test_dataset_shorter_than_a_batch_is_refused(folder: Path) -> None:
    """Samples are not repeated inside one batch."""
    with raises(DataError, "dataset-shorter-than-batch"):
        open_hdf5(str(folder), batch_size=11)


@pytest.mark.parametrize(
    "keys",
    [
        {"drop_last": False},
        {"data_dir": []},
        {"data_dir": None},
        {"mixture": [{"data_dir": "x", "weight": 1}]},
        {"data_dir": None, "mixture": [{"data_dir": "x", "weight": 0}]},
        {"use_vsl": True, "data_transforms": [{"name": "add_sink_tokens"}]},
        {"data_transforms": [{"name": "add_memory_tokens"}]},
    ],
)
def test_unsupported_keys_are_refused(keys: dict[str, object]) -> None:
    """Never silently ignored."""
    with pytest.raises(ConfigError):
        open_hdf5(**({"data_dir": "nowhere"} | keys))


def test_mixture_alternates_by_weight(tmp_path: Path) -> None:
    """Each dataset in its own order; an epoch has every sample of the larger shares."""
    write_samples(tmp_path / "x" / "a.h5", 0, 6)
    write_samples(tmp_path / "y" / "a.h5", 100, 2)
    entries = [
        {"data_dir": str(tmp_path / "x"), "weight": 3},
        {"data_dir": str(tmp_path / "y"), "weight": 1},
    ]
    source = open_hdf5(None, mixture=entries, batch_size=8)
    assert len(source) == 1
    assert numbers(source, 0) == [100, 0, 1, 2, 101, 3, 4, 5]
    shuffled = open_hdf5(None, mixture=entries, batch_size=8, shuffle=True)
    assert sorted(numbers(shuffled, 0)) == sorted(numbers(source, 0))


def test_mixture_repeats_small_datasets(tmp_path: Path) -> None:
    """So that the proportion is kept; a subset is one of its own dataset."""
    write_samples(tmp_path / "x" / "a.h5", 0, 10)
    write_samples(tmp_path / "y" / "a.h5", 100, 2)
    entries = [
        {"data_dir": str(tmp_path / "x"), "weight": 0.5, "data_subset": "0.0-0.4"},
        {"data_dir": str(tmp_path / "y"), "weight": 0.5},
    ]
    source = open_hdf5(None, mixture=entries, batch_size=8)
    assert sorted(numbers(source, 0)) == [0, 1, 2, 3, 100, 100, 101, 101]


def test_mixture_of_different_lengths_is_refused(tmp_path: Path) -> None:
    write_samples(tmp_path / "x" / "a.h5", 0, 4, length=4)
    write_samples(tmp_path / "y" / "a.h5", 0, 4, length=8)
    entries = [{"data_dir": str(tmp_path / name), "weight": 1} for name in "xy"]
    with raises(DataError, "sequence-lengths-differ"):
        open_hdf5(None, mixture=entries)


def test_sink_tokens_are_added(folder: Path) -> None:
    """At their place, without a loss, and without a longer sequence on request."""
    transform = {
        "name": "add_sink_tokens",
        "sink_token_id": 9,
        "num_sink_tokens": 2,
        "sink_token_start_pos": 1,
    }
    batch = open_hdf5(str(folder), data_transforms=[transform]).batch(0)
    assert batch["input_ids"][1].tolist() == [1, 9, 9, 1, 1, 1]
    assert batch["attention_mask"][1].tolist() == [1, 0, 0, 1, 1, 1]
    cut = {**transform, "truncate_to_original_length": True}
    assert open_hdf5(str(folder), data_transforms=[cut]).batch(0)["labels"].shape == (5, 4)
    outside = {**transform, "sink_token_start_pos": 5}
    with raises(DataError, "sink-token-outside"):
        open_hdf5(str(folder), data_transforms=[outside]).batch(0)


def test_name_of_the_iterable_reader_reads_the_same_batches(folder: Path) -> None:
    """With keys of earlier releases, which have no effect."""
    keys = {"data_dir": str(folder), "batch_size": 5, "shuffle": True, "shuffle_seed": None}
    old = build_source(
        keys | {"data_processor": "GptHDF5DataProcessor", "shuffle_buffer": 7, "vocab_size": 9},
        "train_input",
    )
    new = build_source(keys | {"data_processor": "GptHDF5MapDataProcessor"}, "train_input")
    assert numbers(old, 1) == numbers(new, 1)
