"""A cluster without cstorch: roles and coordinator in this process, of any size.

For tests that set what users cannot (a number of lanes), and for tests of single roles, which
compile a program and drive one role by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from appliance.coordinator.commands import LoadWeights
from appliance.coordinator.coordinator import Coordinator
from appliance.elaboration.elaborate import ClusterSize, elaborate, plan_installation
from appliance.local import LocalRoles
from tests.support.plain_torch.plain_sgd import plain_sgd
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.record import Record
from waferstream.numerics.precision import StreamPrecision
from waferstream.simulator.cluster_timing import ClusterTiming

FP32 = StreamPrecision("float32", "float32")
BF16 = StreamPrecision("bfloat16", "bfloat16")
MACHINE = MachineSpec()


def square(width: int) -> nn.Module:
    """Return a layer with as many outputs as inputs."""
    return nn.Linear(width, width)


class Regression(nn.Module):
    """A small network whose forward pass is its own loss; ``make`` makes a layer of a width."""

    def __init__(self, width: int = 4, depth: int = 2, make: Callable[[int], Any] = square) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(make(width) for _ in range(depth))
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean squared distance of (B, width) outputs to ``y``."""
        hidden = x.to(next(self.parameters()).dtype)
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return (hidden.float() - y).square().mean()


def random_batches(count: int, rows: int, width: int = 4) -> list[dict[str, torch.Tensor]]:
    """Return ``count`` global batches for ``Regression``."""
    generator = torch.Generator().manual_seed(1)
    pairs = torch.randn(count, 2, rows, width, generator=generator)
    return [{"x": x.clone(), "y": y.clone()} for x, y in pairs]


def compile_model(
    model: nn.Module,
    batch: Mapping[str, torch.Tensor],
    num_micro_batches: int,
    *,
    trains: bool = True,
    precision: StreamPrecision = FP32,
) -> Compiled:
    """Compile ``model(**batch)``, with its backward pass if it ``trains``."""
    tensors, structure = pytree.tree_flatten(dict(batch))
    size = len(tensors[0]) // num_micro_batches

    def step(leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss = model(**pytree.tree_unflatten(leaves, structure))
        if trains:
            loss.backward()
        return [loss]

    inputs = [(f"input_{i}", tensor[:size]) for i, tensor in enumerate(tensors)]
    request = CompileRequest(precision, size, num_micro_batches, target="test")
    compiled, _ = compile_step(step, model, inputs, request)
    return compiled


@cache
def compiled_regression(
    rows: int, num_micro_batches: int, *, trains: bool = True, precision: StreamPrecision = FP32
) -> Compiled:
    """Return the step of ``Regression`` on batches of ``rows``, compiled once for all tests."""
    batch = random_batches(1, rows)[0]
    return compile_model(Regression(), batch, num_micro_batches, trains=trains, precision=precision)


def sgd(model: nn.Module, lr: float = 0.1, **limits: Any) -> OptimizerSpec:
    """Return plain gradient descent on all parameters."""
    return plain_sgd((name for name, _ in model.named_parameters()), lr, **limits)


def installation(
    compiled: Compiled,
    source: Callable[[], Any],
    optimizer: OptimizerSpec | None,
    size: ClusterSize,
    machine: MachineSpec = MACHINE,
) -> Installation:
    """Return the installation of a program on a cluster, fed with batches of ``source()``."""
    feed = InputFeed(source, tuple(range(len(compiled.program.inputs))))
    return plan_installation(compiled, feed, optimizer, size, machine)


def start(
    installed: Installation,
    model: nn.Module,
    size: ClusterSize,
    machine: MachineSpec = MACHINE,
    seed: int = 0,
    record: Record | None = None,
) -> Coordinator:
    """Start a cluster with the program installed and the model's weights loaded."""
    parameters = installed.program.parameters
    roles = LocalRoles(elaborate(parameters, size, machine, seed))
    timing = ClusterTiming(machine, size.num_csx, size.num_servers, record=record)
    coordinator = Coordinator(parameters, size.num_servers, timing, roles)
    coordinator.do(Install(installed))
    coordinator.do(LoadWeights({name: p.detach() for name, p in model.named_parameters()}))
    return coordinator


def train_regression(size: ClusterSize, **limits: float) -> Coordinator:
    """Start a cluster with ``Regression`` installed, to run on two batches of ten rows."""
    model, source = Regression(), partial(random_batches, 2, 10)
    installed = installation(compiled_regression(10, 5), source, sgd(model, **limits), size)
    return start(installed, model, size)
