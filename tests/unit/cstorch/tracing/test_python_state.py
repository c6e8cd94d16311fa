"""State in Python that a step can read: found, compared, put back."""

from __future__ import annotations

import functools
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cstorch.tracing.python_state import PythonState
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError

TABLE = {"weight": 1.0}
VARIABLE: ContextVar[float] = ContextVar("VARIABLE", default=1.0)
LOCAL = threading.local()


@dataclass(slots=True)
class Slots:
    """An object without a dict."""

    count: int = 0


class Schedule:
    """An object of the user."""

    steps = 0

    def __init__(self) -> None:
        self.inner = {"values": [1.0, {"deep": 2.0}]}


def step() -> object:
    """Read globals."""
    return TABLE, VARIABLE, LOCAL


def changed(root: object, change: Callable[[], object]) -> list[bool]:
    """Return whether state is current at first, after a change, and after it was put back."""
    state = PythonState(root)
    found = [state.is_current()]
    change()
    found.append(state.is_current())
    state.rewind()
    return [*found, state.is_current()]


def changes() -> list[Any]:
    """Return pairs of a root and a change of what it leads to."""
    layer, schedule, slots = nn.Dropout(0.1), Schedule(), Slots()
    tail, array, names = deque([1, 2]), np.zeros(3), SimpleNamespace(a=1)
    partial = functools.partial(max, [1, 2])
    return [
        (layer, lambda: setattr(layer, "p", 0.2)),
        (layer, layer.eval),
        (schedule, lambda: schedule.inner["values"][1].update(deep=3.0)),  # type: ignore[attr-defined]
        (schedule, lambda: setattr(Schedule, "steps", Schedule.steps + 1)),
        ([slots], lambda: setattr(slots, "count", 1)),
        ((tail,), tail.popleft),
        ({"a": array}, lambda: array.fill(1.0)),
        (names, lambda: setattr(names, "b", 1)),
        (partial, lambda: partial.args[0].append(3)),
        (step, lambda: TABLE.update(weight=2.0)),
        (step, lambda: VARIABLE.set(2.0)),
        (step, lambda: setattr(LOCAL, "weight", 2.0)),
    ]


@pytest.mark.parametrize("case", range(len(changes())))
def test_a_change_is_seen_and_put_back(case: int) -> None:
    """Of attributes, containers, classes, globals and values of a thread."""
    assert changed(*changes()[case]) == [True, False, True]


@pytest.mark.parametrize("make", [lambda: random.Random(1), lambda: np.random.default_rng(1)])
def test_generators_go_back(make: Callable[[], Any]) -> None:
    """Draws elsewhere in the program are no change; those of a step are."""
    generator = make()
    state = PythonState([generator])
    first = generator.random()
    assert state.is_current()
    assert state.has_drawn()
    state.rewind()
    assert not state.has_drawn()
    assert generator.random() == first


def test_draws_of_arrays_that_are_printed_in_part_are_seen() -> None:
    """A program may shorten how numpy prints arrays."""
    generator = np.random.RandomState(1)
    other = generator.get_state(legacy=False)
    other["state"]["key"][100] += 1
    with np.printoptions(threshold=10):
        state = PythonState([generator])
        generator.set_state(other)
        assert state.has_counted()


def test_iterators_in_variables_go_back() -> None:
    """Of Python's own: what was read is read again, by all who hold one, and then what follows."""
    factors = iter([1.0, 2.0, 3.0])
    holder = SimpleNamespace(factors=factors, same=factors)
    state = PythonState(holder)
    assert (next(holder.factors), next(holder.same)) == (1.0, 2.0)
    assert not state.is_current()
    state.rewind()
    assert state.is_current()
    assert next(holder.factors) == 1.0
    assert PythonState(holder).is_current()
    assert [*holder.same] == [2.0, 3.0]


def test_other_iterators_cannot_go_back() -> None:
    """A step that has moved one must not be recorded again."""
    factors = itertools.cycle([1.0, 2.0])
    state = PythonState((factors,))
    state.rewind()
    next(factors)
    assert not state.is_current()
    with raises(ApplianceCompilationError, "step-reads-iterator"):
        state.rewind()


def test_objects_of_torch_are_no_state() -> None:
    """Neither are values of parameters."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = PythonState((model, optimizer))
    optimizer.param_groups[0]["lr"] = 0.2
    with torch.no_grad():
        model.weight.mul_(2.0)
    assert state.is_current()


def test_counts_name_the_line_that_writes_them() -> None:
    """For an error about them."""

    def count() -> None:
        schedule.total += 1

    schedule = SimpleNamespace(total=0)
    state = PythonState(count)
    assert not state.has_counted()
    count()
    assert state.has_counted()
    assert str(state.line_of("total")).endswith("schedule.total += 1")


def test_weights_that_a_recurrent_module_keeps_by_itself_are_no_state() -> None:
    """It renews them where it is called with streamed ones; a counter beside them is state."""
    model: Any = nn.LSTM(3, 2)
    state, inputs = PythonState(model), torch.zeros(1, 1, 3)
    others = {name: each.detach() + 1 for name, each in model.named_parameters()}
    torch.func.functional_call(model, others, inputs)
    assert state.is_current()
    assert changed(model, lambda: setattr(model, "count", 1)) == [True, False, True]
    expected = torch.func.functional_call(nn.LSTM(3, 2), dict(model.named_parameters()), inputs)
    assert torch.equal(model(inputs)[0], expected[0])
