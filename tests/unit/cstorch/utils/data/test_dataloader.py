"""DataLoader: a function that makes the loader on each input worker."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest
import torch

from cstorch.distributed import get_worker_state
from cstorch.utils.data import DataLoader, RestartableDataLoader
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    ROWS,
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import random_batches
from waferstream.core.errors import DataError
from waferstream.core.program.program import Loading


def numbers(count: int, *, start: int = 0) -> list[int]:
    return list(range(start, start + count))


def test_source_makes_a_loader_on_every_worker() -> None:
    """Each call makes a loader of its own, with the arguments that were given."""
    loader = DataLoader(numbers, 3, start=5)
    assert loader.source() == [5, 6, 7]
    assert loader.source() is not loader.source()
    assert pickle.loads(pickle.dumps(loader.source))() == [5, 6, 7]


def test_local_loader_is_made_once() -> None:
    """It is made on first access."""
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return numbers(4)

    loader = DataLoader(make)
    assert made == []
    assert len(loader) == 4
    assert loader.local == [0, 1, 2, 3]
    assert made == [1]


def test_first_batch_is_read_once() -> None:
    """A generator gives the same first batch to every loop."""
    loader = DataLoader(lambda: iter([torch.zeros(2), torch.ones(2)]))
    assert loader.first is loader.first
    assert loader.first[0].tolist() == [0, 0]


def test_seed_is_that_of_torch_when_the_loader_is_made() -> None:
    """A later seed, or numbers drawn in between, change nothing."""

    def shuffled() -> torch.utils.data.DataLoader[torch.Tensor]:
        samples: Any = torch.arange(64)
        return torch.utils.data.DataLoader(samples, batch_size=64, shuffle=True)

    torch.manual_seed(11)
    loader = DataLoader(shuffled)
    expected = next(iter(shuffled()))
    torch.manual_seed(12)
    assert loader.seed == 11
    assert torch.equal(loader.first[0], expected)


def test_loader_instead_of_a_function_is_refused() -> None:
    """A loader could not be built on the workers."""
    made: Any = numbers(3)
    with raises(DataError, "input-fn-not-callable"):
        DataLoader(made)


def test_len_needs_a_loader_with_a_length() -> None:
    """A loader without a length raises TypeError."""
    with pytest.raises(TypeError):
        len(DataLoader(lambda: iter(numbers(3))))


def test_loading_is_stated_by_the_loader() -> None:
    """It is the loader's own, or that of a torch DataLoader, or unknown."""

    class CsvLoader(list[int]):
        loading = Loading("csv", num_workers=4)

    def torch_loader() -> torch.utils.data.DataLoader[int]:
        samples: Any = [1, 2]
        return torch.utils.data.DataLoader(samples, num_workers=1)

    assert DataLoader(CsvLoader).loading == Loading("csv", num_workers=4)
    assert DataLoader(torch_loader).loading == Loading(num_workers=1)
    assert DataLoader(numbers, 3).loading == Loading()


def weighted(step: int) -> list[dict[str, torch.Tensor]]:
    """Return batches of ``Regression`` from one step of an endless row on."""
    return random_batches(12, ROWS)[step:]


@pytest.mark.parametrize("kind", ["CSX", "CPU"])
def test_loaded_loader_goes_on_where_training_ended(kind: str) -> None:
    """The losses are those of the batches that were not read yet; a new loader follows the step."""
    with running_backend(device=kind) as backend:
        step, data = training_step(backend, lr=0.0), loader(partial(weighted, 0))
        losses(step, executor(3, data))
        state = data.state_dict()
        expected = losses(step, executor(2, data))
    assert state["batches"] == 3
    with running_backend(device=kind) as backend:
        step, data = training_step(backend, lr=0.0), loader(partial(weighted, 0))
        data.load_state_dict(state)
        assert data.state_dict() == state
        assert losses(step, executor(2, data)) == expected
        assert data.state_dict()["batches"] == 5
        data.load_state_dict(state)
        assert losses(step, executor(2, data)) == expected


def test_state_counts_samples_whatever_the_batch_size() -> None:
    """A program may skip samples; a batch of another size begins at the same sample."""
    data = loader(partial(weighted, 0))
    for state in ({"samples_streamed": 2 * ROWS}, {"batches": 1, "samples_streamed": 2 * ROWS}):
        data.load_state_dict(state)
        assert data.state_dict() == {"batches": 2, "samples_streamed": 2 * ROWS}
    with raises(DataError, "loader-state-inside-batch"):
        data.load_state_dict({"samples_streamed": ROWS + 1})


class Counting(list[dict[str, torch.Tensor]]):
    """A loader with a state of its own."""

    def state_dict(self) -> dict[str, Any]:
        state = get_worker_state()
        return {"seen": state.samples_streamed, "steps": state.worker_step}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None: ...

    def aggregate_state_dict(self, worker_states: list[dict[str, Any]]) -> dict[str, Any]:
        return {"workers": worker_states}

    def deaggregate_state_dict(self, aggregated_state_dict: Any, strict: bool = True) -> Any: ...


def test_state_of_a_restartable_loader_is_in_the_checkpoint() -> None:
    data = loader(lambda: Counting(weighted(0)))
    data.load_state_dict({"batches": 3})
    assert isinstance(data.local, RestartableDataLoader)
    seen = {"seen": 3 * ROWS, "steps": 3}
    expected = {"workers": [seen], "batches": 3, "samples_streamed": 3 * ROWS}
    assert data.state_dict() == expected


def test_unknown_state_of_a_loader_is_refused() -> None:
    """Without ``strict`` the loader stays as it is."""
    data = DataLoader(numbers, 3)
    with raises(DataError, "loader-state-unknown"):
        data.load_state_dict({"epoch": 3})
    data.load_state_dict({"epoch": 3}, strict=False)
    assert data.state_dict()["batches"] == 0
