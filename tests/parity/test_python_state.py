"""State in Python that a step reads has in each step the value that it has in a plain loop."""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cstorch
from cstorch import backends
from cstorch.trace import TracedStep
from cstorch.tracing.fitted_step import fit_step
from tests.support.errors import raises
from tests.support.nightly import nightly
from tests.support.programs.cstorch_program import executor, loader, running_backend
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ApplianceCompilationError

STEPS = 5
CONFIG = {"weight": 1.0}
CALLS = 0


class Net(nn.Module):
    """Two layers whose output is scaled by what a subclass reads in Python."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 5)
        self.beta: Any = 1.0

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.b(torch.relu(self.a(x))) * self.scale(), y)

    def scale(self) -> Any:
        return self.beta

    def limit(self) -> float:
        """Return the norm of gradients to which the step clips."""
        return 1e9

    def after(self, step: int) -> None:
        """Do what the loop of the program does after a step."""


class Counter(Net):
    calls = 0

    def scale(self) -> float:
        self.calls += 1
        return min(1.0, self.calls / 4)


class Limit(Net):
    """A counter that decides the update alone."""

    calls = 0

    def limit(self) -> float:
        self.calls += 1
        return 0.2 * self.calls


class Late(Counter):
    """Changes after steps that were equal."""

    def scale(self) -> float:
        self.calls += 1
        return 1.0 if self.calls < 4 else 0.5


class Branch(Counter):
    """Other ops in every other step."""

    def scale(self) -> Any:
        self.calls += 1
        return self.b.bias.exp() if self.calls % 2 else 1.0


class OfClass(Net):
    calls = 0

    def scale(self) -> float:
        OfClass.calls += 1
        return 1.0 / OfClass.calls


class OfList(Net):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def scale(self) -> float:
        self.seen.append(0.3)
        return sum(self.seen)


class OfDict(Net):
    def scale(self) -> float:
        state = vars(self).setdefault("state", {"t": 0})
        state["t"] += 1
        return float(state["t"] ** -0.5)


class OfGlobal(Net):
    def __init__(self) -> None:
        super().__init__()
        global CALLS  # noqa: PLW0603 - as programs do
        CALLS = 0

    def scale(self) -> float:
        global CALLS  # noqa: PLW0603 - as programs do
        CALLS += 1
        return 1.0 / CALLS


class OfObject(Net):
    """A schedule as an object of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = SimpleNamespace(t=0, decay=0.8)

    def scale(self) -> float:
        self.schedule.t += 1
        return float(self.schedule.decay**self.schedule.t)


class OfClosure(Net):
    def __init__(self) -> None:
        super().__init__()
        count = 0

        def scale() -> float:
            nonlocal count
            count += 1
            return 1.0 / count

        self.draw: Callable[[], Any] = scale

    def scale(self) -> Any:
        return self.draw()


class OfRandom(OfClosure):
    def __init__(self) -> None:
        super().__init__()
        self.draw = random.Random(7).random


class OfPython(OfClosure):
    """The generator of the process."""

    def __init__(self) -> None:
        super().__init__()
        random.seed(7)
        self.draw = random.random


class OfNumPy(OfClosure):
    def __init__(self) -> None:
        super().__init__()
        np.random.seed(7)
        self.draw = lambda: torch.from_numpy(np.random.rand(5)).float()


class OfGenerator(OfClosure):
    def __init__(self) -> None:
        super().__init__()
        generator = np.random.default_rng(7)
        self.draw = lambda: float(generator.random())


class OfIterator(OfClosure):
    def __init__(self) -> None:
        super().__init__()
        factors = itertools.cycle([1.0, 1.0, 0.5])
        self.draw = lambda: next(factors)


class OfTuple(OfClosure):
    """What cannot be replaced."""

    def __init__(self) -> None:
        super().__init__()
        factors = (itertools.cycle([1.0, 1.0, 0.5]),)
        self.draw = lambda: next(factors[0])


class OfClock(OfClosure):
    """What nobody can look at: two recordings differ."""

    def __init__(self) -> None:
        super().__init__()
        self.draw = Mock(side_effect=[1.0, 0.5, 0.25, 2.0, 1.5, 1.0])


class Number(Net):
    def after(self, step: int) -> None:
        self.beta = 1.0 / (step + 1)


class LateNumber(Net):
    def after(self, step: int) -> None:
        self.beta = 1.0 if step < 3 else 0.1


class Array(Net):
    def __init__(self) -> None:
        super().__init__()
        self.beta = torch.ones(5)

    def after(self, step: int) -> None:
        self.beta = torch.full((5,), 1.0 / (step + 1))


class InPlace(Array):
    def after(self, step: int) -> None:
        self.beta.mul_(0.5 if step == 2 else 1.0)


class Part(Net):
    """The loop changes a module of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.activation = nn.LeakyReLU(0.1)

    def scale(self) -> Any:
        return self.activation(-self.b.bias)

    def after(self, step: int) -> None:
        self.activation.negative_slope = 0.1 * step


class Config(Net):
    def __init__(self) -> None:
        super().__init__()
        CONFIG["weight"] = 1.0

    def scale(self) -> float:
        return CONFIG["weight"]

    def after(self, step: int) -> None:
        CONFIG["weight"] = 0.5 if step >= 2 else 1.0


class OfEnvironment(Net):
    def __init__(self) -> None:
        super().__init__()
        os.environ["WAFERSTREAM_TEST_WEIGHT"] = "1.0"

    def scale(self) -> float:
        return float(os.environ["WAFERSTREAM_TEST_WEIGHT"])

    def after(self, step: int) -> None:
        os.environ["WAFERSTREAM_TEST_WEIGHT"] = str(1.0 / step)


class Method(Net):
    """The loop replaces a method of the class."""

    def weight(self) -> float:
        return 1.0

    def scale(self) -> float:
        return self.weight()

    def after(self, step: int) -> None:
        if step == 2:
            Method.weight = Method.less_weight  # type: ignore[method-assign]

    def less_weight(self) -> float:
        return 0.5


KINDS = [
    Counter,
    Limit,
    Late,
    Branch,
    OfClass,
    OfList,
    OfDict,
    OfGlobal,
    OfObject,
    OfClosure,
    OfRandom,
]
KINDS += [OfGenerator, OfIterator, Number, LateNumber, Array, InPlace, Part, Config]
KINDS += [OfEnvironment, Method, OfPython, OfNumPy]


def batches() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "x": torch.randn(12, 4, generator=generator),
            "y": torch.randint(5, (12,), generator=generator),
        }
        for _ in range(STEPS)
    ]


def plain(model: Net) -> list[float]:
    """Train in a plain loop; return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    seen = []
    for step, batch in enumerate(batches(), 1):
        optimizer.zero_grad()
        loss = model(**batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), model.limit())
        optimizer.step()
        model.after(step)
        seen.append(loss.item())
    return seen


def on_cluster(net: Net, activation_steps: int = 1, size: int = 3, num_csx: int = 2) -> list[float]:
    """Train on a cluster; return the losses at activation steps."""
    with running_backend(Shape(num_csx)) as backend:
        backends.csx.performance.micro_batch_size = size
        model = cstorch.compile(net, backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5)
        seen: list[float] = []

        @cstorch.step_closure
        def note(loss: torch.Tensor) -> None:
            seen.append(loss.item())

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), net.limit())
            optimizer.step()
            optimizer.zero_grad()
            return loss

        loop = executor(STEPS, loader(batches), activation_steps=activation_steps)
        for number, batch in enumerate(loop, 1):
            note(step(batch))
            net.after(number)
        for parameter in net.parameters():
            parameter.sum()  # fetches it
        return seen


@pytest.mark.parametrize(
    ("kind", "activation_steps"),
    [
        *((kind, 1) for kind in KINDS),
        (KINDS[0], STEPS),
        *nightly(*((kind, STEPS) for kind in KINDS[1:])),
    ],
)
def test_state_has_the_values_of_a_plain_loop(
    kind: type[Net], activation_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a step or the loop around it changes the state, however late, and in any job.

    A step that records the same ops is not compiled again.
    """
    compiling = Mock(wraps=fit_step)
    monkeypatch.setattr(sys.modules[TracedStep.__module__], "fit_step", compiling)
    OfClass.calls, weight = 0, Method.weight
    reference = kind()
    wanted = plain(reference)
    OfClass.calls, Method.weight = 0, weight  # type: ignore[method-assign]
    net = kind()
    seen = on_cluster(net, activation_steps)
    assert seen == pytest.approx(wanted[activation_steps - 1 :], abs=2e-6)
    for mine, other in zip(net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=0, atol=2e-6)
    Method.weight = weight  # type: ignore[method-assign]
    assert compiling.call_count == (STEPS if kind is Branch else 1)


@pytest.mark.parametrize("size", [1, *nightly(5), 7])
@pytest.mark.parametrize("kind", [Counter, InPlace])
def test_state_has_its_values_in_micro_batches_of_any_size(kind: type[Net], size: int) -> None:
    """Of two sizes, one of them a single sample, and of single samples alone."""
    wanted = plain(kind())
    assert on_cluster(kind(), size=size) == pytest.approx(wanted, abs=2e-6)


@pytest.mark.parametrize(
    ("kind", "code"), [(OfTuple, "step-reads-iterator"), (OfClock, "number-changes-by-itself")]
)
def test_state_that_cannot_be_put_back_is_refused(kind: type[Net], code: str) -> None:
    """Python runs for a micro-batch and for the batch, and must find the same; one finds it."""
    with raises(ApplianceCompilationError, code):
        on_cluster(kind())
    wanted = plain(kind())
    assert on_cluster(kind(), size=12, num_csx=1) == pytest.approx(wanted, abs=2e-6)


class DrawsBySample(Net):
    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(7)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        noise = self.random.standard_normal((x.shape[0], 4))
        return super().forward(x + torch.from_numpy(noise).float(), y)


class CountsSamples(Net):
    seen = 0

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.seen += len(x)
        return super().forward(x, y) * min(1.0, self.seen / 48)


@pytest.mark.parametrize("kind", [DrawsBySample, CountsSamples])
def test_state_that_follows_samples_is_refused(kind: type[Net]) -> None:
    """Python runs on one micro-batch for all; in a single one it is that of a plain loop."""
    with raises(ApplianceCompilationError, "host-random-in-step") as caught:
        on_cluster(kind())
    assert Path(__file__).name in str(caught.value.where)
    wanted = plain(kind())
    assert on_cluster(kind(), size=12, num_csx=1) == pytest.approx(wanted, abs=2e-6)
