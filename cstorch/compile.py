"""Register a model, and choose micro-batch size and recomputed layers so that a step fits.

The path of a traced step is a line (``cstorch.trace``):

    record at the policy's size -> fit_to_wafer -> record again if the fit differs -> install
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from cstorch import flags
from cstorch.amp import stream_precision
from cstorch.backend import Backend
from cstorch.current import current_backend
from simulator.exploration import exploration_table, explore, fastest
from simulator.simulator import Simulator
from timing.sram import largest_with_recompute, plan_sram, report_text, sram_report
from wsc.compiler.compile import CompileRequest
from wsc.compiler.compiled import Compiled
from wsc.compiler.listing import schedule_listing
from wsc.compiler.scale import capture_both
from wsc.core.errors import ApplianceCompilationError, ConfigError
from wsc.core.loading import Loading
from wsc.core.micro_batches import FLAG, SizeRange, explored_sizes
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Program

log = logging.getLogger("waferstream")

RecordAt = Callable[[int], tuple[Compiled, OptimizerSpec | None]]
"""Records a step at a micro-batch size; returns its program and the update that follows it."""


@dataclass(frozen=True)
class Fit:
    """The form in which a step fits the wafer: micro-batch size and recomputed layers."""

    micro_batch_size: int
    recomputed_layers: tuple[str, ...] = ()


def compile(model: nn.Module, backend: Backend | None = None) -> nn.Module:
    """Register the model with the backend; returns the module that a traced step calls."""
    backend = backend or current_backend()
    backend.register(model)
    if not hasattr(model, "device"):
        # Programs for the real machine ask the model where to make tensors for a step.
        model.device = backend.torch_device  # type: ignore[assignment]
    return model


def model_of(backend: Backend) -> nn.Module:
    """Return the registered model; ApplianceCompilationError if there is none."""
    if backend.model is None:
        raise ApplianceCompilationError(
            "no model was compiled",
            code="no-model",
            remedy="call cstorch.compile(model, backend) first",
        )
    return backend.model


def first_size(backend: Backend, batch_size: int, record: RecordAt, loading: Loading) -> int:
    """Return the micro-batch size at which a step is recorded first.

    Raises ConfigError where the batch cannot be cut as the policy asks.
    """
    policy = flags.csx.performance.policy
    if policy.range is not None:
        return _fastest_size(backend, batch_size, policy.range, record, loading)
    return policy.size(batch_size, backend.cluster_config.num_csx)


def fit_to_wafer(backend: Backend, program: Program, batch_size: int) -> Fit:
    """Return the fit of a step that was recorded at its first size.

    Layers are recomputed where activations do not fit; where that is not enough, ``auto`` and
    ``fill_wafer`` take a smaller size. Footprints are affine in the samples of a micro-batch, so
    the fit at any size follows from one program. Raises ApplianceResourceExhausted if none fits.
    """
    policy, config = flags.csx.performance.policy, backend.cluster_config
    wafer, size = config.cluster.machine.system, program.micro_batch_size
    largest = largest_with_recompute(program, wafer)
    if policy.depends_on_wafer and 0 < largest < size:
        log.info("Micro-batches of %d samples do not fit a %s", size, wafer.name)
        size = policy.size(batch_size, config.num_csx, largest)
    sram_plan = plan_sram(replace(program, micro_batch_size=size), wafer)
    layers = tuple(program.segments[index].layer for index in sram_plan.recomputed)
    if layers:
        log.info("To fit a %s, %d layers are recomputed", wafer.name, len(layers))
    return Fit(size, layers)


def compile_request(
    backend: Backend, tensors: Sequence[torch.Tensor], fit: Fit
) -> tuple[list[tuple[str, torch.Tensor]], CompileRequest]:
    """Return the inputs of one micro-batch, and the rest of what decides a compile.

    ``tensors`` are those of a global batch that the step reads, with all its rows.
    """
    config, size = backend.cluster_config, fit.micro_batch_size
    _check_kind(config.cluster.machine.system.name)
    inputs = [(f"input_{i}", t.new_empty(size, *t.shape[1:])) for i, t in enumerate(tensors)]
    request = CompileRequest(
        precision=stream_precision(),
        micro_batch_size=size,
        # A comparison of sizes captures at fixed ones, which may be larger than the batch.
        num_micro_batches=max(1, tensors[0].shape[0] // size),
        recomputed_layers=fit.recomputed_layers,
        target=f"{config.num_csx} x {config.cluster.machine.model_dump_json()}",
    )
    return inputs, request


def _check_kind(system: str) -> None:
    """Refuse a kind of system that ``csx.debug.fabric_type_blacklist`` excludes."""
    excluded = flags.csx.debug.fabric_type_blacklist
    if system.replace("-", "").lower() in excluded:
        raise ConfigError(
            f"no system is left: the cluster has {system} only",
            code="fabric-type-excluded",
            where="csx.debug.fabric_type_blacklist",
            value=", ".join(excluded),
            remedy="change the flag, or the system in cluster.yaml",
        )


def log_compiled(backend: Backend, program: Program, *, was_cached: bool) -> None:
    """Log the outcome of a compile: the cut of the batch, the artifact, and the schedule."""
    policy, size = flags.csx.performance.policy, program.micro_batch_size
    log.info("%s", policy.describe(program.batch_size, size, program.num_micro_batches))
    if was_cached:
        log.info('Found existing cached compile with hash: "%s"', program.digest)
    elif backend.cache is not None and not backend.validate_only:
        artifact = backend.cache.root / program.digest
        log.info("Compile artifacts successfully written to %s", artifact)
    if backend.compile_only:
        log.info("%s", schedule_listing(program, backend.size().num_servers))
        wafer = backend.cluster_config.cluster.machine.system
        log.info("%s", report_text(sram_report(plan_sram(program, wafer))))
    if backend.validate_only:
        log.info("Every op of the step has a kernel")
    log.info("Compile was successful!")


def _fastest_size(
    backend: Backend, batch_size: int, allowed: SizeRange, record: RecordAt, loading: Loading
) -> int:
    """Return the size with the shortest emulated step, of those that fit the wafer."""
    if backend.is_e2e_execution:
        raise ConfigError(
            "explore compares micro-batch sizes and runs nothing",
            code="explore-runs-nothing",
            where=FLAG,
            rule="explore goes with compile_only",
            remedy="compile with --compile_only, then set the size that it names",
        )
    config = backend.cluster_config
    sizes = explored_sizes(batch_size, allowed, config.num_csx)
    optimizers: list[OptimizerSpec | None] = []

    def capture(size: int) -> Compiled:
        compiled, optimizer = record(size)
        optimizers.append(optimizer)
        return compiled

    program = capture_both(capture)
    simulator = Simulator.of(
        program, optimizers[0], config.cluster.machine, backend.size().num_servers, loading
    )
    trials = explore(simulator, batch_size, sizes, config.num_csx)
    best = fastest(trials)
    log.info("Explored micro-batch sizes:\n%s", exploration_table(trials))
    log.info("Fastest: csx.performance.micro_batch_size: %d", best.micro_batch_size)
    return best.micro_batch_size
