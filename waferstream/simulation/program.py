"""A simulation from Python: a model and a batch instead of a params file."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import cstorch
from appliance.input.batches import batch_leaves
from appliance.spec import Cluster
from cstorch.backend import Backend
from cstorch.current import existing_backend
from cstorch.optim.group_spec import sparse_weights
from cstorch.optim.optimizer import Optimizer
from cstorch.sparse import SparsityAlgorithm
from cstorch.trace import TracedStep
from cstorch.tracing.fit import group_of_samples
from waferstream.compiler.derivation.scale import captured_sizes
from waferstream.config.sections.init import LoopConfig
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import UNKNOWN_LOADING
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.management.model.inventory import MOST_SYSTEMS
from waferstream.reports.curve.records import curve_records
from waferstream.reports.curve.result import CurvePoint, CurveResult
from waferstream.reports.records import to_dataframe
from waferstream.scaling.sweep import SimulationRequest
from waferstream.simulation.capture import captured_step, with_rows
from waferstream.simulation.captured import CapturedStep
from waferstream.simulation.output import simulation_text
from waferstream.simulation.session import Labels, simulate_study, write_simulation
from waferstream.simulation.sparse_steps import simulated_sparsity
from waferstream.simulation.step_at_sizes import compile_at
from waferstream.simulation.study import Study
from waferstream.simulator.simulator import Simulator
from waferstream.workload.user_classes import compute_loss

LossOf = Callable[[nn.Module, Any], torch.Tensor]
if TYPE_CHECKING:
    import pandas as pd

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
Sparsity = SparsityAlgorithm | float | Mapping[str, Any] | Sequence[Mapping[str, Any]]


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

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row of pandas for each number of systems, with low and high of every rate."""
        return to_dataframe(list(curve_records(self.result)))

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
    loss_of: LossOf | None = None,
    optimizer: MakeOptimizer | None = None,
    cluster: Cluster | None = None,
    weak_scaling: bool = False,
    sparsity: Sparsity | None = None,
    num_steps: int | None = None,
    sparsity_step: int | None = None,
) -> Simulation:
    """Predict the time of a training step on each number of systems, without training.

    The precision and the micro-batch size are those of ``cstorch.amp`` and
    ``cstorch.backends.csx``. The model keeps its weights and may be trained afterwards.

    Args:
        model: Any module.
        batch: A global batch: a tensor, a mapping or a sequence of tensors with equal rows. Model
            and batch may be on the meta device, where they take no memory.
        num_csx: Numbers of systems; the largest is reported in detail.
        loss_fn: The loss of ``waferstream.workload.user_classes.compute_loss``; without it the
            model returns its loss.
        loss_of: Function of model and batch that returns the loss, in place of ``loss_fn``.
        optimizer: Function of the parameters that makes the optimizer, AdamW by default.
        cluster: The machine: its YAML file, its sections, or its name; a CS-2 by default.
        weak_scaling: Whether every system gets a batch of the size of ``batch``.
        sparsity: Which weights are sparse: an algorithm, or what ``cstorch.sparse.configure``
            takes. It need not be applied to the model, and is applied to none afterwards.
        num_steps: The steps of the training, over which densities are averaged; without it the
            densities of step 1 count.
        sparsity_step: The step whose densities count instead.

    Raises:
        ConfigError: An argument is wrong, or a backend exists already.
        WaferStreamError: The step cannot be compiled, or the model does not fit the machine.
    """
    counts = _checked_counts(num_csx)
    size, policy = _batch_size(batch), cstorch.backends.csx.performance.policy
    group = group_of_samples(model)
    policy.check(size * counts[-1] if weak_scaling else size, counts[-1], group)
    last = max(num_steps or 1, sparsity_step or 1)
    make = _Make(optimizer or _adamw, _algorithm(sparsity), last)
    with _capturing(counts[-1], cluster) as backend:
        computed = loss_of or (lambda model, batch: compute_loss(model, loss_fn, batch))
        traced = _Traced.of(model, batch, computed, make, backend)
        step = traced.captured()
        charged, line = simulated_sparsity(step, LoopConfig(max_steps=num_steps), sparsity_step)
        simulator = replace(_simulator(step, backend), sparsity=charged)
        tokens = step.tokens_per_sample
        study = Study(simulator, size, tokens, policy, weak_scaling, line, group_of_samples=group)
        study = traced.with_one_group(study, counts)
    labels = Labels(step.model_class, type(traced.optimizer).__name__)
    result = simulate_study(study, labels, counts, counts[-1], SimulationRequest())
    return Simulation(result, study)


@dataclass(frozen=True)
class _Make:
    """What makes the optimizer of a model, whose weights are sparse until a last step."""

    function: MakeOptimizer
    sparsity: SparsityAlgorithm | None
    last_step: int

    def of(self, model: nn.Module) -> Optimizer:
        optimizer = self.function(model.parameters())
        if self.sparsity is not None:
            model.apply(self.sparsity)
            optimizer.apply(self.sparsity)
        return optimizer

    def sparse_weights(self, model: nn.Module) -> Iterator[WeightSparsity]:
        """Yield the sparsity of each weight, with levels until the last step."""
        names: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters()}
        return sparse_weights(self.sparsity, names, self.last_step, seed=0)


def _algorithm(sparsity: Sparsity | None) -> SparsityAlgorithm | None:
    if sparsity is None:
        return None
    if isinstance(sparsity, SparsityAlgorithm):
        return sparsity.unapplied()
    return cstorch.sparse.configure(sparsity)


@contextmanager
def _capturing(num_csx: int, cluster: Cluster | None) -> Iterator[Backend]:
    """Provide a backend that steps are captured on, for at most ``num_csx`` systems."""
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
        yield backend
    finally:
        backend.shutdown()


def _simulator(step: CapturedStep, backend: Backend) -> Simulator:
    return Simulator(
        step.program,
        backend.cluster_config.cluster.machine,
        backend.session.settings.size().num_servers,
        update=step.update,
        waits_for_all=step.waits_for_all,
        loading=UNKNOWN_LOADING,
        sparse=step.sparse,
    )


def _cluster_config(num_csx: int, cluster: Cluster | None) -> cstorch.ClusterConfig:
    if cluster is None:
        return cstorch.ClusterConfig(num_csx=num_csx)
    return validate(cstorch.ClusterConfig, {"num_csx": num_csx, "cluster": cluster}, "simulate")


def _checked_counts(num_csx: int | Sequence[int]) -> tuple[int, ...]:
    given = tuple(num_csx) if isinstance(num_csx, Sequence) else (num_csx,)
    if not given or not all(type(count) is int and 1 <= count <= MOST_SYSTEMS for count in given):
        raise ConfigError(
            f"num_csx must be numbers of systems from 1 to {MOST_SYSTEMS:,}",
            code="out-of-range",
            where="simulate",
            value=num_csx,
        )
    return tuple(sorted(set(given)))


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
    copied = copy.deepcopy(model, memo)
    for module in copied.modules():
        for name, value in vars(module).items():
            if isinstance(value, FunctionType) and value.__closure__:
                setattr(module, name, _with_copies(value, memo))
    return copied


def _with_copies(function: FunctionType, memo: Mapping[int, Any]) -> FunctionType:
    """Return a function that uses the copies of modules and tensors; deepcopy keeps its cells."""
    cells = tuple(_cell_of_copy(cell, memo) for cell in function.__closure__ or ())
    copied = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _cell_of_copy(cell: CellType, memo: Mapping[int, Any]) -> CellType:
    try:
        value = cell.cell_contents
    except ValueError:  # empty
        return cell
    return CellType(memo[id(value)]) if id(value) in memo else cell


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that a step can be recorded with; one without memory gets some."""
    return torch.empty_like(tensor, device="cpu") if tensor.is_meta else tensor


def _adamw(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return cstorch.optim.AdamW(parameters, lr=1e-3)


@dataclass(frozen=True)
class _Traced:
    """A training step that can be captured at any micro-batch size."""

    model: nn.Module  # without values
    optimizer: Optimizer
    step: TracedStep
    batch: Any  # the samples of the largest size to capture
    sparse: tuple[WeightSparsity, ...]

    @classmethod
    def of(
        cls,
        given: nn.Module,
        batch: Any,
        loss_of: LossOf,
        make_optimizer: _Make,
        backend: Backend,
    ) -> _Traced:
        model = _without_values(given)
        cstorch.compile(model, backend)
        optimizer = make_optimizer.of(model)

        @cstorch.trace
        def train(batch: Any) -> torch.Tensor:
            loss = loss_of(model, batch)
            cstorch.amp.optimizer_step(loss, optimizer, cstorch.amp.GradScaler(1.0))
            return loss

        assert isinstance(train, TracedStep)
        _, most = captured_sizes(group_of_samples(model))
        few = pytree.tree_map_only(torch.Tensor, lambda x: _on_host(with_rows(most, x)), batch)
        return cls(model, optimizer, train, few, tuple(make_optimizer.sparse_weights(model)))

    def captured(self) -> CapturedStep:
        """Return the step at the two sizes from which larger ones follow."""
        sizes = captured_sizes(group_of_samples(self.model))
        small, large = compile_at(self.step, self.batch, sizes)
        step = captured_step(small, large, type(self.model).__name__)
        return replace(step, sparse=self.sparse)

    def with_one_group(self, study: Study, counts: Sequence[int]) -> Study:
        """Return a study with the step of a single group of samples, if a cluster takes one."""
        if not any(study.takes_one_group(count) for count in counts):
            return study
        (one,) = compile_at(self.step, self.batch, (study.group_of_samples,))
        return replace(study, simulator=replace(study.simulator, one_group=one.program))
