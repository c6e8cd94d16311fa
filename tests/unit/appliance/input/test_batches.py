"""Global batches by step: by random access where the source offers it, else read in order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

from appliance.input.batches import GlobalBatches, LoaderRandom, batch_leaves, generators_of
from tests.support.errors import raises
from waferstream.core.errors import DataError

TWELVE: Any = torch.arange(12)
FOUR: Any = range(4)


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


def draw() -> tuple[float, float, float]:
    return torch.rand(1).item(), float(np.random.rand()), random.random()


def shuffled() -> DataLoader[torch.Tensor]:
    return DataLoader(TWELVE, batch_size=3, shuffle=True)


def with_generator() -> DataLoader[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return DataLoader(TWELVE, batch_size=3, shuffle=True, generator=generator)


def samples(batches: GlobalBatches, steps: range) -> list[list[int]]:
    return [batches.leaves(step)[0].tolist() for step in steps]


def test_in_place_draws_what_a_seeded_process_draws() -> None:
    """torch, NumPy and random start from the seed."""
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    expected = draw()
    torch.manual_seed(6)
    with LoaderRandom(5).in_place():
        assert draw() == expected


def test_in_place_keeps_the_state_of_the_process() -> None:
    """What a loader draws changes no other random number of the process."""
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    expected = [draw(), draw()]
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    seen = [draw()]
    with LoaderRandom(5).in_place():
        draw()
    assert [*seen, draw()] == expected


def test_shuffle_equals_a_plain_loop_over_epochs() -> None:
    """Three epochs have three orders, those of a plain loop after torch.manual_seed."""
    torch.manual_seed(3)
    loader = shuffled()
    expected = [batch.tolist() for _ in range(3) for batch in loader]
    torch.manual_seed(4)
    assert samples(GlobalBatches(shuffled, seed=3), range(12)) == expected
    assert expected[:4] != expected[4:8]


def test_shuffle_is_equal_on_workers_that_read_in_turns() -> None:
    """Workers that share a process, and a loader, do not disturb each other."""
    shared = with_generator()
    for make in (shuffled, with_generator, lambda: shared):
        one, two = GlobalBatches(make, seed=3), GlobalBatches(make, seed=3)
        in_turns = [(one.leaves(step)[0], two.leaves(step)[0]) for step in range(10)]
        assert all(torch.equal(a, b) for a, b in in_turns)


def test_shuffle_is_the_same_after_a_resume() -> None:
    """A worker that starts at step 6 reads what an uninterrupted one reads there."""
    for make in (shuffled, with_generator):
        whole = samples(GlobalBatches(make, seed=3), range(10))
        assert samples(GlobalBatches(make, seed=3), range(6, 10)) == whole[6:]


def test_going_back_repeats_the_first_epoch() -> None:
    """Every evaluation reads the same batches, also with a generator that has moved on."""
    for make in (shuffled, with_generator, lambda: iter(shuffled())):
        batches = GlobalBatches(make, seed=3)
        first = samples(batches, range(6))
        batches.drop_before(6)
        assert samples(batches, range(6)) == first


def test_data_drawn_by_the_input_function_are_equal_on_all_workers() -> None:
    """A data set of random numbers, and augmentation while reading, depend on the seed alone."""

    def make() -> list[torch.Tensor]:
        return [torch.randn(4) for _ in range(3)]

    one, two = (samples(GlobalBatches(make, seed=seed), range(3)) for seed in (8, 8))
    assert one == two != samples(GlobalBatches(make, seed=9), range(3))


def test_random_access_source_may_draw_numbers_when_made() -> None:
    """Its construction is seeded like that of any loader."""

    class Source:
        def __init__(self) -> None:
            self.offset = torch.rand(2)

        def batch(self, step: int) -> torch.Tensor:
            return self.offset + step

    one, two = (samples(GlobalBatches(Source, seed=1), range(2)) for _ in range(2))
    assert one == two


def test_generators_of_a_loader_and_its_samplers() -> None:
    """Each generator is found once, wherever the user gave it."""
    one, two = torch.Generator(), torch.Generator()
    sampler = RandomSampler(range(4), generator=one)
    assert generators_of(DataLoader(FOUR, sampler=sampler)) == [one]
    assert generators_of(DataLoader(FOUR, sampler=sampler, generator=two)) == [two, one]
    assert generators_of(DataLoader(FOUR, shuffle=True, generator=two)) == [two]
    assert generators_of([1, 2]) == []


class WithoutLength:
    """A dataset that a DataLoader cannot count."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(2 + index % 2)


class OfTwoLengths(WithoutLength):
    """Samples of two lengths."""

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("dataset", [WithoutLength(), OfTwoLengths()], ids=["length", "shapes"])
def test_dataset_that_torch_cannot_read_is_told_with_a_remedy(dataset: Any) -> None:
    batches = GlobalBatches(lambda: DataLoader(dataset, batch_size=2))
    with raises(DataError, "dataset-not-readable-by-loader") as caught:
        batches.first()
    assert caught.value.remedy
