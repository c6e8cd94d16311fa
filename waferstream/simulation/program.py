"""A simulation from Python: a model and a batch instead of a params file."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import cstorch
from appliance.batches import batch_leaves
from appliance.spec import ClusterSpec, load_cluster
from cstorch.current import existing_backend
from cstorch.optim.optimizer import Optimizer
from cstorch.trace import TracedStep
from modelzoo.user_classes import compute_loss
from simulator.simulator import Simulator
from waferstream.config.sections import LoopConfig
from waferstream.reports.curve import CurvePoint, CurveResult
from waferstream.scaling.sweep import SimulationRequest
from waferstream.simulation.capture import CapturedStep, captured_step, compile_at, with_rows
from waferstream.simulation.output import simulation_text
from waferstream.simulation.session import Labels, simulate_study, write_simulation
from waferstream.simulation.sparse_steps import simulated_sparsity
from waferstream.simulation.study import Study
from wsc.compiler.scale import CAPTURED_SIZES
from wsc.core.errors import ConfigError
from wsc.core.loading import UNKNOWN_LOADING

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


@dataclass(frozen=True)
class Simulation:
    """A finished simulation; its text is the report of ``run.py --simulate``."""

    result: CurveResult
    study: Study

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """The predicted steps, one for each number of systems."""
        return self.result.points

    def __str__(self) -> str:
        return simulation_text(self.result)

    def write(self, folder: Path | str) -> None:
        """Write the files of ``run.py --simulate``: JSON, page, figures and trace."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_simulation(Path(folder), self.result, self.study, None)


def simulate(
    model: nn.Module,
    batch: Any,
    num_csx: int | Sequence[int] = 1,
    *,
    loss_fn: Callable[..., torch.Tensor] | None = None,
    optimizer: MakeOptimizer | None = None,
    cluster: ClusterSpec | Path | str | None = None,
    weak_scaling: bool = False,
) -> Simulation:
    """Predict the time of a training step on each number of systems, without training.

    The precision and the micro-batch size are those of ``cstorch.amp`` and
    ``cstorch.backends.csx``. The model keeps its weights and may be trained afterwards.

    Args:
        model: Any module.
        batch: A global batch: a tensor, a mapping or a sequence of tensors with equal rows. Model
            and batch may be on the meta device, where they take no memory.
        num_csx: Numbers of systems; the largest is reported in detail.
        loss_fn: The loss of ``modelzoo.user_classes.compute_loss``; without it the model returns
            its loss.
        optimizer: Function of the parameters that makes the optimizer, AdamW by default.
        cluster: The machine, or its YAML file; a CS-2 by default.
        weak_scaling: Whether every system gets a batch of the size of ``batch``.

    Raises:
        ConfigError: A number of systems or the batch is wrong, or a backend exists already.
        WaferStreamError: The step cannot be compiled, or the model does not fit the machine.
    """
    counts = _checked_counts(num_csx)
    size, policy = _batch_size(batch), cstorch.backends.csx.performance.policy
    policy.check(size * counts[-1] if weak_scaling else size, counts[-1])
    step, simulator, labels = _captured(
        model, batch, counts[-1], loss_fn, optimizer or _adamw, cluster
    )
    sparsity, line = simulated_sparsity(step, LoopConfig())
    simulator = replace(simulator, sparsity=sparsity)
    study = Study(simulator, size, step.tokens_per_sample, policy, weak_scaling, line)
    result = simulate_study(study, labels, counts, counts[-1], SimulationRequest())
    return Simulation(result, study)


def _captured(
    model: nn.Module,
    batch: Any,
    num_csx: int,
    loss_fn: Callable[..., torch.Tensor] | None,
    make_optimizer: MakeOptimizer,
    cluster: ClusterSpec | Path | str | None,
) -> tuple[CapturedStep, Simulator, Labels]:
    """Capture the step on at most ``num_csx`` systems, and name what is simulated."""
    if existing_backend() is not None:
        raise ConfigError(
            "a simulation must come before the program's own backend",
            code="simulation-beside-backend",
            rule="one backend per process",
            remedy="simulate first, or after backend.shutdown()",
        )
    backend = cstorch.backend(
        "CSX", cluster_config=_cluster_config(num_csx, cluster), validate_only=True
    )
    try:
        copied = _without_values(model)
        cstorch.compile(copied, backend)
        optimizer = make_optimizer(copied.parameters())
        step = _capture(copied, loss_fn, optimizer, batch)
        simulator = Simulator(
            step.program,
            backend.cluster_config.cluster.machine,
            backend.size().num_servers,
            update=step.update,
            waits_for_all=step.waits_for_all,
            loading=UNKNOWN_LOADING,
            sparse=step.sparse,
        )
    finally:
        backend.shutdown()
    labels = Labels(step.model_class, type(optimizer).__name__)
    return step, simulator, labels


def _cluster_config(
    num_csx: int, cluster: ClusterSpec | Path | str | None
) -> cstorch.ClusterConfig:
    if cluster is None:
        return cstorch.ClusterConfig(num_csx=num_csx)
    spec = cluster if isinstance(cluster, ClusterSpec) else load_cluster(Path(cluster))
    return cstorch.ClusterConfig(num_csx=num_csx, cluster=spec)


def _checked_counts(num_csx: int | Sequence[int]) -> tuple[int, ...]:
    counts = (num_csx,) if isinstance(num_csx, int) else tuple(sorted(set(num_csx)))
    if not counts or any(not isinstance(count, int) or count < 1 for count in counts):
        raise ConfigError(
            "num_csx must be numbers of systems from 1 on",
            code="out-of-range",
            where="simulate",
            value=num_csx,
        )
    return counts


def _batch_size(batch: Any) -> int:
    leaves = batch_leaves(batch)
    if not leaves:
        raise ConfigError(
            "a batch must hold a tensor",
            code="batch-without-tensor",
            where="simulate",
            value=type(batch).__name__,
        )
    return len(leaves[0])


def _without_values(model: nn.Module) -> nn.Module:
    """Return a copy whose weights take no memory; it shares the buffers, which nothing changes."""
    memo: dict[int, Any] = {id(buffer): _on_host(buffer) for buffer in model.buffers()}
    for weight in model.parameters():
        empty = torch.empty_like(weight, device="meta")
        memo[id(weight)] = nn.Parameter(empty, weight.requires_grad)
    return copy.deepcopy(model, memo)


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that a step can be recorded with; one without memory gets some."""
    return torch.empty_like(tensor, device="cpu") if tensor.is_meta else tensor


def _adamw(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return cstorch.optim.AdamW(parameters, lr=1e-3)


def _capture(
    model: nn.Module,
    loss_fn: Callable[..., torch.Tensor] | None,
    optimizer: Optimizer,
    batch: Any,
) -> CapturedStep:
    @cstorch.trace
    def train(batch: Any) -> torch.Tensor:
        loss = compute_loss(model, loss_fn, batch)
        cstorch.amp.optimizer_step(loss, optimizer, cstorch.amp.GradScaler(1.0))
        return loss

    assert isinstance(train, TracedStep)
    few = pytree.tree_map_only(
        torch.Tensor, lambda x: _on_host(with_rows(CAPTURED_SIZES[-1], x)), batch
    )
    small, large = compile_at(train, few, CAPTURED_SIZES)
    return captured_step(small, large, few, type(model).__name__)
