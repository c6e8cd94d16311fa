"""The random numbers of a loader: a state of its own, equal on every worker."""

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler

from appliance.input.batches import GlobalBatches
from appliance.input.loader_random import LoaderRandom, generators_of

TWELVE: Any = torch.arange(12)
FOUR: Any = range(4)


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
