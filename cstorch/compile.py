"""Register a model, and choose micro-batch size and recomputed layers so that a step fits.

The path of a traced step is a line (``cstorch.trace``):

    record once -> compile at the policy's size -> fit_to_wafer -> compile again if the fit differs
    -> install
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import nn

from csnode.engine.regions import layer_regions, operand_dtype, regions_text
from cstorch import flags
from cstorch.amp import stream_precision
from cstorch.backend import Backend
from cstorch.current import backend_of, current_backend
from cstorch.session.session import Session
from waferstream.compiler.artifact import schedule_listing
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.scale import capture_both, captured_sizes
from waferstream.core.errors import ApplianceCompilationError, ConfigError
from waferstream.core.events import Phase
from waferstream.core.optimizer.spec import OptimizerSpec
from waferstream.core.program.loading import Loading
from waferstream.core.program.micro_batches import (
    FILL_WAFER,
    FLAG,
    Cut,
    SizeRange,
    check_groups,
    explored_sizes,
    share_of,
)
from waferstream.core.program.program import Program
from waferstream.machine.program_report import program_report
from waferstream.machine.sram import data_bytes, largest_with_recompute, plan_sram, report_text
from waferstream.simulator.exploration import exploration_table, explore, fastest
from waferstream.simulator.simulator import Simulator

log = logging.getLogger("waferstream")

CompileAt = Callable[[int], tuple[Compiled, OptimizerSpec | None]]
"""Compiles a step at a micro-batch size; returns its program and the update that follows it."""

EXPECTED_BYTES_PER_ACTIVATION = 128
"""An amount that activations of a layer with gradients, scores and masks rarely exceed."""


@dataclass(frozen=True)
class Fit:
    """The form in which a step fits the wafer: its micro-batches and recomputed layers."""

    cut: Cut
    recomputed_layers: tuple[str, ...] = ()


def compile(model: nn.Module, backend: Backend | str | None = None) -> nn.Module:
    """Register the model with the backend; return the module that a traced step calls.

    The kind of a backend stands for that of this process, or for a new one.

    Of a module that ``torch.compile`` has wrapped, this is the module itself.
    """
    backend = backend_of(backend) if isinstance(backend, str) else backend or current_backend()
    model = _unwrapped(model)
    if not isinstance(model, nn.Module):
        raise ConfigError(
            "cstorch.compile must get a torch.nn.Module",
            code="not-a-module",
            where="cstorch.compile",
            value=type(model).__name__,
            remedy="compile the module, and call other functions in the traced step",
        )
    _note_types(model)
    backend.session.register(model)
    if not hasattr(model, "device"):
        # Programs for the real machine ask the model where to make tensors for a step.
        model.device = backend.torch_device  # type: ignore[assignment]
    return model


def _note_types(model: nn.Module) -> None:
    """Say that masters are fp32, where a model has parameters of other types."""
    types = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if types:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in types))
        log.warning(
            "Parameters are %s: MemoryX keeps and updates them in float32, and rounds them where"
            " they are read; cstorch.save keeps all bits",
            names,
        )


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside of what ``torch.compile`` has made of it."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # slow to import, and then not needed
    if compiler is None or not isinstance(model, compiler.OptimizedModule):
        return model
    log.info("torch.compile has no effect: the step is compiled for the wafer")
    inner: nn.Module = model._orig_mod
    return inner


def model_of(session: Session) -> nn.Module:
    """Return the registered model; ApplianceCompilationError if there is none."""
    if session.model.module is None:
        raise ApplianceCompilationError(
            "no model was compiled",
            code="no-model",
            remedy="call cstorch.compile(model, backend) first",
        )
    return session.model.module


def recorded_size(session: Session, tensors: Sequence[torch.Tensor]) -> tuple[int, bool]:
    """Return the micro-batch size at which a step is recorded, and whether others may follow.

    Others follow where sizes are explored, where the batch does not divide, and where a smaller
    size is taken because the first one does not fit. Nothing follows from a single group of
    samples. Raises ConfigError where the batch cannot be cut as the policy asks.
    """
    policy, num_csx = flags.csx.performance.policy, session.settings.cluster_config.num_csx
    batch_size, group = tensors[0].shape[0], group_of_samples(model_of(session))
    if policy.range is not None:
        explored_sizes(batch_size, policy.range, num_csx, group)
        return captured_sizes(group)[0], True
    size = policy.size(batch_size, num_csx)
    if size <= group:
        return size, False
    is_uneven = Cut.of(batch_size, size, num_csx).num_short > 0
    return size, is_uneven or (policy.depends_on_wafer and not _fits_surely(session, tensors, size))


def target_of(session: Session) -> str:
    """Return the description of the cluster that a program is for."""
    config = session.settings.cluster_config
    return f"{config.num_csx} x {config.cluster.machine.model_dump_json()}"


def group_of_samples(model: nn.Module) -> int:
    """Return how many consecutive samples share a loss, which a model states under this name."""
    return getattr(model, "group_of_samples", 1)


def _fits_surely(session: Session, tensors: Sequence[torch.Tensor], size: int) -> bool:
    """Return whether a micro-batch is so small that any model of these parameters has room.

    Every element of a sample is taken to pass through every parameter, and to attend to all others.
    """
    elements = max(prod(tensor.shape[1:]) for tensor in tensors)
    shapes = [tuple(parameter.shape) for parameter in model_of(session).parameters()]
    activations = elements * sum(sum(shape) for shape in shapes) + elements**2 * len(shapes)
    wafer = session.settings.cluster_config.cluster.machine.system
    return size * activations * EXPECTED_BYTES_PER_ACTIVATION <= data_bytes(wafer)


def first_cut(session: Session, batch_size: int, compile_at: CompileAt, loading: Loading) -> Cut:
    """Return the micro-batches for which a step is compiled first.

    Raises ConfigError where the batch cannot be cut as the policy asks.
    """
    policy, num_csx = flags.csx.performance.policy, session.settings.cluster_config.num_csx
    if policy.range is None:
        size = policy.size(batch_size, num_csx)
    else:
        size = _fastest_size(session, batch_size, policy.range, compile_at, loading)
    return _of_whole_groups(session, Cut.of(batch_size, size, num_csx))


def _of_whole_groups(session: Session, cut: Cut) -> Cut:
    """Return a cut; ConfigError if it cuts a group of samples that share a loss."""
    check_groups(cut, group_of_samples(model_of(session)))
    return cut


def fit_to_wafer(session: Session, program: Program) -> Fit:
    """Return the fit of a step that was compiled at its first size.

    Layers are recomputed where activations do not fit; where that is not enough, ``auto`` and
    ``fill_wafer`` take a smaller size. Footprints are affine in the samples of a micro-batch, so
    the fit at any size follows from one program. Raises ApplianceResourceExhausted if none fits.
    """
    policy, config = flags.csx.performance.policy, session.settings.cluster_config
    wafer, cut = config.cluster.machine.system, program.cut
    largest = largest_with_recompute(program, wafer)
    if policy.depends_on_wafer and 0 < largest < cut.size:
        log.info("Micro-batches of %d samples do not fit a %s", cut.size, wafer.name)
        size = policy.size(cut.batch_size, config.num_csx, largest)
        cut = _of_whole_groups(session, Cut.of(cut.batch_size, size, config.num_csx))
    sram_plan = plan_sram(replace(program, micro_batch_size=cut.size), wafer)
    layers = tuple(program.segments[index].layer for index in sram_plan.recomputed)
    if layers:
        log.info("To fit a %s, %d layers are recomputed", wafer.name, len(layers))
    return Fit(cut, layers)


def log_compiled(session: Session, program: Program, *, was_cached: bool) -> None:
    """Log the outcome of a compile: the cut of the batch, the artifact, and the schedule."""
    policy = flags.csx.performance.policy
    if adjusted := policy.adjustment(program.micro_batch_size):
        log.info("%s", adjusted)
    log.info("%s", policy.describe(program.cut))
    if policy.requested == "auto":
        _log_filled(session, program)
    if was_cached:
        log.info('Found existing cached compile with hash: "%s"', program.digest)
    elif session.settings.cache is not None and not session.settings.validate_only:
        artifact = session.settings.cache.root / program.digest
        log.info("Compile artifacts successfully written to %s", artifact)
    _log_engine(session, program)
    if not session.settings.is_e2e_execution:
        wafer = session.settings.cluster_config.cluster.machine.system
        report = program_report(program, wafer, was_cached=was_cached)
        session.program_reports.append(report)
        if session.settings.compile_only:
            log.info("%s", schedule_listing(program, session.settings.size().num_servers))
            log.info("%s", report_text(report.sram))
    if session.settings.validate_only:
        log.info("Every op of the step has a kernel")
    log.info(Phase.COMPILED)


def _log_engine(session: Session, program: Program) -> None:
    """Log where the kernels of each layer run, if the wafer computes some."""
    engine = session.settings.cluster_config.cluster.runtime.engine
    if not engine.is_torch:
        dtype = operand_dtype(stream_precision(session.model.module).compute)
        log.info("%s", regions_text(layer_regions(engine, program, dtype)))


def _log_filled(session: Session, program: Program) -> None:
    """Log what policy ``fill_wafer`` would take, where it is more than ``auto`` does."""
    config = session.settings.cluster_config
    largest = largest_with_recompute(program, config.cluster.machine.system)
    size = FILL_WAFER.size(program.batch_size, config.num_csx, largest)
    if size > program.micro_batch_size:
        log.info(
            "Policy auto gives the same weights for 1 to 8 systems; fill_wafer would take "
            "micro-batches of %d, for num_csx=%d alone",
            size,
            config.num_csx,
        )


def _fastest_size(
    session: Session, batch_size: int, allowed: SizeRange, compile_at: CompileAt, loading: Loading
) -> int:
    """Return the size with the shortest emulated step, of those that fit the wafer."""
    if session.settings.is_e2e_execution:
        raise ConfigError(
            "explore compares micro-batch sizes and runs nothing",
            code="explore-runs-nothing",
            where=FLAG,
            rule="explore goes with compile_only",
            remedy="compile with --compile_only, then set the size that it names",
        )
    config, group = session.settings.cluster_config, group_of_samples(model_of(session))
    sizes = explored_sizes(batch_size, allowed, config.num_csx, group)
    optimizers: list[OptimizerSpec | None] = []

    def capture(size: int) -> Compiled:
        compiled, optimizer = compile_at(size)
        optimizers.append(optimizer)
        return compiled

    program = capture_both(capture, group)
    simulator = Simulator.of(
        program,
        optimizers[0],
        config.cluster.machine,
        session.settings.size().num_servers,
        loading,
        capture(group).program if sizes[0] == group > 1 else None,
    )
    trials = explore(simulator, batch_size, sizes, config.num_csx)
    best = fastest(trials)
    log.info("Explored micro-batch sizes:\n%s", exploration_table(trials))
    share = share_of(batch_size, config.num_csx)
    if best.micro_batch_size == share:
        log.info(
            "No benefit from gradient accumulation expected. Compile will proceed at original "
            "per-box batch size %d",
            share,
        )
    else:
        log.info("Gradient accumulation picked micro batch size %d", best.micro_batch_size)
    log.info("Fastest: csx.performance.micro_batch_size: %d", best.micro_batch_size)
    return best.micro_batch_size
