"""Step state: which part of a step updates buffers, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.errors import raises
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from waferstream.compiler.compiled import Compiled, compiled_from_json, compiled_to_json
from waferstream.core.errors import ApplianceCompilationError


class Stateful(Regression):
    """A network with buffers; ``act`` sees it, its hidden values and its outputs."""

    def __init__(self, act: Callable[[Any, torch.Tensor], object]) -> None:
        super().__init__()
        self.act = act
        self.average: torch.Tensor
        self.count: torch.Tensor
        self.scale: torch.Tensor
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.norm = nn.BatchNorm1d(4, momentum=None)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.layers[0](x) * self.scale
        self.act(self, hidden)
        return (hidden - y).square().mean()


def compiled(act: Callable[[Any, torch.Tensor], object]) -> Compiled:
    return compile_model(Stateful(act), random_batches(1, 4)[0], 2)


def write_in_place(net: Stateful, hidden: torch.Tensor) -> None:
    net.average.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)
    net.count += 1


def assign(net: Stateful, hidden: torch.Tensor) -> None:
    net.average = net.average + 0.1 * (hidden.detach().mean(0) - net.average)
    net.count = net.count + 1


@pytest.mark.parametrize("act", [write_in_place, assign])
def test_update_takes_what_micro_batches_contribute(act: Any) -> None:
    """Buffers written in place or by assignment become state; a buffer that is read stays."""
    step = compiled(act)
    state = step.program.state
    assert {spec.name: spec.dtype for spec in state.writes} == {
        "average": "float32",
        "count": "int64",
    }
    assert [spec.shape for spec in state.contributions] == [(4,)]
    assert state.reads == ()
    assert step.state_update is not None
    update = step.state_update.build()
    arguments = {"average": torch.ones(4), "count": torch.tensor(3)}
    results = update(*(arguments[name] for name in state.arguments), torch.full((4,), 2.0))
    found = dict(zip((spec.name for spec in state.writes), results, strict=True))
    assert torch.allclose(found["average"], torch.full((4,), 1.1))
    assert found["count"].item() == 4


def test_update_is_part_of_the_artifact() -> None:
    """A program from the compile cache updates its buffers, too."""
    step = compiled(write_in_place)
    stored = compiled_from_json(compiled_to_json(step), step.program.digest)
    assert stored.program == step.program
    assert stored.state_update is not None
    assert step.state_update is not None
    assert stored.state_update.text == step.state_update.text


def test_trace_leaves_the_buffers_alone() -> None:
    """Ops on single values run for real while a step is traced, but on copies."""
    net = Stateful(write_in_place)
    compile_model(net, random_batches(1, 4)[0], 2)
    assert net.count.item() == 0
    assert type(net.count) is torch.Tensor


def test_step_without_writes_has_no_state() -> None:
    """Buffers that are only read are constants of the kernels."""
    step = compiled(lambda net, hidden: None)
    assert step.program.state.writes == step.program.state.reads == ()
    assert step.state_update is None


def overwrite_later(net: Stateful, hidden: torch.Tensor) -> None:
    total = hidden.detach().sum(0)
    net.average += total
    total.zero_()


def test_update_reads_values_before_they_are_overwritten() -> None:
    """What a micro-batch contributes is the value at the time of the write."""
    step = compiled(overwrite_later)
    assert "clone" in "".join(kernel.text for kernel in step.kernels)


def use_in_loss(net: Stateful, hidden: torch.Tensor) -> None:
    net.average += 1
    hidden.add_(net.average)


def write_out(net: Stateful, hidden: torch.Tensor) -> None:
    with torch.no_grad():
        torch.add(net.average, 1, out=net.average)
    hidden.add_(net.average)


def draw(net: Stateful, hidden: torch.Tensor) -> None:
    net.average.uniform_()


def normalize(net: Stateful, hidden: torch.Tensor) -> None:
    net.norm(hidden.detach())


def branch(net: Stateful, hidden: torch.Tensor) -> None:
    if net.count:
        net.average += 1
    net.count += 1


def compare(net: Stateful, hidden: torch.Tensor) -> None:
    if net.count < 3:
        net.count += 1


def reshape(net: Stateful, hidden: torch.Tensor) -> None:
    net.average = hidden.detach()


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (use_in_loss, "state-in-gradient"),
        (write_out, "state-in-gradient"),
        (draw, "state-in-random-op"),
        (normalize, "state-read-on-host"),
        (branch, "state-read-on-host"),
        (compare, "op-depends-on-values"),
        (reshape, "state-shape-changed"),
    ],
)
def test_state_that_cannot_be_expressed_is_refused(act: Any, code: str) -> None:
    """Each has its own code."""
    with raises(ApplianceCompilationError, code):
        compiled(act)
