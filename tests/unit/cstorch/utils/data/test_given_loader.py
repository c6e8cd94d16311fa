"""Loaders that a program has made itself."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

import cstorch
from cstorch.utils.data.given_loader import GivenLoader, loader_of
from tests.support.errors import raises
from tests.support.programs.cstorch_program import batches, evaluation_step, loader, losses
from waferstream.core.errors import ConfigError


def shuffled(**options: Any) -> torch.utils.data.DataLoader[torch.Tensor]:
    samples: Any = torch.arange(32)
    return torch.utils.data.DataLoader(samples, batch_size=16, shuffle=True, **options)


def test_loader_of_cstorch_stays_as_it_is() -> None:
    given = loader()
    assert loader_of(given, {}) is given


def test_every_loop_over_one_loader_goes_on() -> None:
    known: dict[int, Any] = {}
    given = shuffled()
    assert loader_of(given, known) is loader_of(given, known)
    assert loader_of(shuffled(), known) is not loader_of(given, known)


def test_order_is_that_of_a_plain_loop_at_the_first_loop() -> None:
    """Numbers drawn before count, numbers drawn by the process afterwards do not."""
    torch.manual_seed(5)
    torch.rand(3)
    state = torch.get_rng_state()
    given = GivenLoader(shuffled())
    given.start_at(0)
    torch.rand(7)
    given.start_at(2)
    copy = pickle.loads(pickle.dumps(given.source))
    seen = [GivenLoader.batch(given, step)[0].tolist() for step in range(4)]
    torch.set_rng_state(state)
    plain = shuffled()
    assert seen == [batch.tolist() for _ in range(2) for batch in plain]
    assert len(copy().dataset) == 32


def test_generator_of_the_loader_counts() -> None:
    given = GivenLoader(shuffled(generator=torch.Generator().manual_seed(2)))
    given.start_at(0)
    expected = [batch.tolist() for batch in shuffled(generator=torch.Generator().manual_seed(2))]
    assert [given.batch(step)[0].tolist() for step in range(2)] == expected


def test_list_of_batches_is_a_loader(backend: cstorch.Backend) -> None:
    given = batches()
    seen = losses(evaluation_step(backend), cstorch.utils.data.DataExecutor(given))
    assert len(seen) == len(given)


@pytest.mark.parametrize("given", [None, 3, "batches", {"batch": 1}])
def test_what_has_no_batches_is_refused(given: Any, backend: cstorch.Backend) -> None:
    with raises(ConfigError, "not-a-loader") as caught:
        cstorch.utils.data.DataExecutor(given, 1)
    assert caught.value.value == type(given).__name__
    assert "DataLoader(input_fn)" in (caught.value.remedy or "")


def test_iterator_is_refused(backend: cstorch.Backend) -> None:
    """Workers would go on where this process has stopped, with other batches."""
    with raises(ConfigError, "loader-read-once"):
        cstorch.utils.data.DataExecutor(iter(batches()), 1)
