"""Batches are cut from an endless stream of samples, for any batch size."""

from itertools import islice

import numpy as np
import torch

from modelzoo.data.source import OrderedBatches, next_token_batch
from tests.support.errors import raises
from waferstream.core.errors import DataError
from waferstream.workload.data import Batch


class Counted:
    """Samples whose value is their index."""

    name = "counted"

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples

    def __len__(self) -> int:
        return self._num_samples

    def read(self, indices: np.ndarray) -> Batch:
        return {"input_ids": torch.from_numpy(indices)}


def batches(dataset_size: int, batch_size: int, **keys: object) -> OrderedBatches:
    defaults = {"shuffle": False, "shuffle_seed": 0} | keys
    return OrderedBatches(Counted(dataset_size), batch_size=batch_size, **defaults)  # type: ignore[arg-type]


def ids(source: OrderedBatches, step: int) -> list[int]:
    return source.batch(step)["input_ids"].tolist()


def test_leftover_samples_start_the_next_epoch() -> None:
    """Seven samples in batches of three: none is dropped or repeated in an epoch."""
    source = batches(7, 3)
    assert len(source) == 2
    assert [ids(source, step) for step in range(4)] == [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4]]


def test_stream_of_samples_does_not_depend_on_batch_size() -> None:
    """Six batches of two are the samples of three batches of four."""
    twos, fours = batches(7, 2, shuffle=True), batches(7, 4, shuffle=True)
    stream = [sample for step in range(6) for sample in ids(twos, step)]
    assert stream == [sample for step in range(3) for sample in ids(fours, step)]


def test_iteration_is_batches_by_step() -> None:
    """Iteration gives batches 0, 1, 2, ... past the end of an epoch."""
    source = batches(5, 2, shuffle=True)
    iterated = [batch["input_ids"].tolist() for batch in islice(source, 7)]
    assert iterated == [ids(source, step) for step in range(7)]


def test_num_samples_resizes_an_epoch() -> None:
    """An epoch of two passes mixes both; a shortened one leaves the tail out."""
    longer = batches(3, 6, shuffle=True, num_samples=6)
    assert sorted(ids(longer, 0)) == [0, 0, 1, 1, 2, 2]
    assert ids(longer, 0) != ids(longer, 1)
    shorter = batches(3, 2, num_samples=2)
    assert [ids(shorter, step) for step in range(2)] == [[0, 1], [0, 1]]


def test_dataset_shorter_than_a_batch_is_refused() -> None:
    """The error names the dataset and both numbers."""
    with raises(DataError, "dataset-shorter-than-batch") as caught:
        batches(7, 8)
    assert caught.value.where == "counted"
    assert caught.value.value == "7 samples, batch_size 8"


def test_empty_dataset_is_refused() -> None:
    """This holds for every num_samples."""
    with raises(DataError, "dataset-empty"):
        batches(0, 1, num_samples=10)


def test_next_token_batch_shifts_labels() -> None:
    """A window of T + 1 tokens gives T inputs and T labels, each label the input's successor."""
    batch = next_token_batch(np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint8))
    assert batch["input_ids"].tolist() == [[1, 2], [4, 5]]
    assert batch["labels"].tolist() == [[2, 3], [5, 6]]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 1]]
    assert all(t.dtype == torch.int64 and t.is_contiguous() for t in batch.values())
