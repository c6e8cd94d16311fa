"""Global batches by step: by random access where the source offers it, else read in order."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch

from appliance.input.batches import GlobalBatches, batch_leaves
from tests.support.errors import raises
from waferstream.core.errors import DataError


def batch(number: int, rows: int = 2) -> dict[str, Any]:
    return {"x": torch.full((rows, 3), float(number)), "note": "text", "y": torch.zeros(rows)}


class RandomAccess:
    """Source with random access that records the requested steps."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def batch(self, step: int) -> dict[str, Any]:
        self.asked.append(step)
        return batch(step)


class InOrder:
    """A loader that counts how often it was started."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.started = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.started += 1
        return (batch(number) for number in range(self.length))


def read(source: Any, batch_size: int | None = 2) -> GlobalBatches:
    """Return the batches of an input function that returns this source."""
    return GlobalBatches(lambda: source, batch_size)


def values(batches: GlobalBatches, steps: Iterable[int]) -> list[float]:
    return [batches.leaves(step)[0][0, 0].item() for step in steps]


def test_source_with_random_access_is_read_by_step() -> None:
    """A resumed run starts at once: nothing before its first step is read."""
    source = RandomAccess()
    assert values(read(source), [1000, 1001, 3]) == [1000, 1001, 3]
    assert source.asked == [1000, 1001, 3]


def test_wrapped_source_is_read_by_step() -> None:
    """A wrapper that passes on what it does not know itself."""

    class Wrapper:
        def __init__(self, source: RandomAccess) -> None:
            self.source = source

        def __getattr__(self, name: str) -> Any:
            return getattr(self.source, name)

    source = RandomAccess()
    assert values(read(Wrapper(source)), [1000, 3]) == [1000, 3]
    assert source.asked == [1000, 3]


def test_batch_is_read_once_for_all_micro_batches() -> None:
    """The latest batch is kept."""
    source = RandomAccess()
    batches = read(source)
    assert batches.leaves(5)[0] is batches.leaves(5)[0]
    assert source.asked == [5]


def test_batches_of_recent_steps_are_kept_until_dropped() -> None:
    """Nodes of one worker may be a step apart: going back to a kept step reads nothing."""
    loader = InOrder(4)
    batches = read(loader)
    assert values(batches, [0, 1, 0, 1]) == [0, 1, 0, 1]
    assert loader.started == 1
    batches.drop_before(1)
    assert values(batches, [1, 2]) == [1, 2]
    assert loader.started == 1


def test_loader_is_read_in_order_and_restarts_at_its_end() -> None:
    """An exhausted loader begins again, as the next epoch."""
    loader = InOrder(3)
    assert values(read(loader), range(7)) == [0, 1, 2, 0, 1, 2, 0]
    assert loader.started == 3


def test_resumed_loader_is_read_up_to_the_step() -> None:
    """Batch 7 of a loader of three is its second one, as without the interruption."""
    assert values(read(InOrder(3)), [7, 8]) == [1, 2]


def test_earlier_step_restarts_the_loader() -> None:
    """An evaluation reads the same batches every time."""
    loader = InOrder(4)
    batches = read(loader)
    assert values(batches, [0, 1]) == [0, 1]
    batches.drop_before(2)
    assert values(batches, [0, 1]) == [0, 1]
    assert loader.started == 2


def test_generator_is_called_again_for_each_epoch() -> None:
    """A generator function gives the same batches in every epoch and every evaluation."""

    def generate() -> Iterator[dict[str, Any]]:
        yield from (batch(number) for number in range(3))

    assert values(GlobalBatches(generate), [0, 1, 2, 3, 4, 0, 1]) == [0, 1, 2, 0, 1, 0, 1]


def test_exhausted_iterator_is_an_error() -> None:
    """The end is an error, not an endless loop."""
    batches = read(batch(number) for number in range(2))
    assert values(batches, [0, 1]) == [0, 1]
    with raises(DataError, "loader-empty"):
        batches.leaves(2)


def test_endless_loader_is_read_lazily() -> None:
    """Only what is needed is read."""
    assert values(read(map(batch, itertools.count())), [0, 5]) == [0, 5]


@pytest.mark.parametrize("empty", [[], iter([])])
def test_empty_loader_is_an_error(empty: Any) -> None:
    """The error comes at the first batch, with a remedy."""
    with raises(DataError, "loader-empty") as caught:
        read(empty).leaves(0)
    assert caught.value.remedy
    assert caught.value.where == "batch 1 of the loader"
    assert type(empty).__name__ in str(caught.value.value)


@pytest.mark.parametrize(
    "wrong", [batch(0, rows=1), {"x": torch.zeros(2), "y": torch.zeros(3)}, {"x": torch.tensor(1)}]
)
def test_every_tensor_has_as_many_rows_as_the_batch(wrong: dict[str, torch.Tensor]) -> None:
    """A short last batch is refused, with the shape and how to avoid it."""
    with raises(DataError, "batch-rows-mismatch") as caught:
        read([wrong]).leaves(0)
    assert "global batch size, 2" in str(caught.value.rule)
    advice = "drop the last" if wrong["x"].ndim else "a row for each sample"
    assert advice in str(caught.value.remedy)


def test_first_batch_sets_the_number_of_rows() -> None:
    """Without a batch size all tensors agree with the first one."""
    _, leaves = read([batch(0, rows=5)], None).first()
    assert [len(leaf) for leaf in leaves] == [5, 5]
    with raises(DataError, "batch-rows-mismatch"):
        batch_leaves({"x": torch.zeros(5), "y": torch.zeros(4)})


def test_batch_leaves_are_tensors_in_pytree_order() -> None:
    """Nested containers are flattened, what is no tensor is left out."""
    a, b, c = (torch.zeros(2) for _ in range(3))
    leaves = batch_leaves({"one": [a, "text"], "two": {"b": b, "n": None}, "three": (c,)})
    assert [leaf is expected for leaf, expected in zip(leaves, (a, b, c), strict=True)] == [
        True
    ] * 3


def test_first_returns_the_structure_of_the_loader() -> None:
    """The user's program iterates over the loader's own structure."""
    first, leaves = read([batch(0)]).first()
    assert first["note"] == "text"
    assert leaves[0] is first["x"]
