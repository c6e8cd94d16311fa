"""Flags of the backend: attributes that check assignments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from cstorch import backends
from wsc.core.micro_batches import Explore, SizeRange


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    backends.reset()


@pytest.mark.parametrize("size", ["auto", None, 1, 64])
def test_micro_batch_size_takes_policies_and_numbers(size: Any) -> None:
    """A policy, a number, or None for the whole share."""
    backends.csx.performance.micro_batch_size = size
    assert backends.csx.performance.micro_batch_size == size


@pytest.mark.parametrize("size", ["explore", {"explore": {}}, {"explore": {"min": 2, "max": 8}}])
def test_explore_is_a_word_or_a_range(size: Any) -> None:
    """The word alone compares all sizes."""
    backends.csx.performance.micro_batch_size = size
    expected = {"min": 2, "max": 8} if "max" in str(size) else {}
    found: Any = backends.csx.performance.micro_batch_size
    assert found == Explore(explore=SizeRange(**expected))


@pytest.mark.parametrize("size", [0, -4, "most", 2.5, {"explore": {"min": 0}}])
def test_micro_batch_size_refuses_other_values(size: Any) -> None:
    """The assignment is refused, not the later use."""
    with pytest.raises(ValidationError):
        backends.csx.performance.micro_batch_size = size


@pytest.mark.parametrize("level", [3, -1, "high"])
def test_optimization_level_refuses_other_values(level: Any) -> None:
    """The vendor's levels are 0, 1 and 2."""
    with pytest.raises(ValidationError):
        backends.csx.precision.optimization_level = level


def test_misspelt_flag_is_refused() -> None:
    """An unknown flag is an error."""
    flags: Any = backends.csx.performance
    with pytest.raises(ValueError, match="mirco_batch_size"):
        flags.mirco_batch_size = 4


def test_reset_restores_the_defaults() -> None:
    """The next program of the process starts with default flags."""
    csx: Any = backends.csx
    csx.performance.micro_batch_size = 4
    csx.precision.optimization_level = 0
    backends.reset()
    assert csx.performance.micro_batch_size == "auto"
    assert csx.precision.optimization_level == 1
