"""From ``csx.performance.micro_batch_size`` to a program whose micro-batches fit the wafer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cstorch import backends
from cstorch.backend import Backend
from cstorch.compile import Fit
from cstorch.loop import Closure
from cstorch.optim.recorder import Recorder
from simulator.exploration import exploration_table, explore, fastest
from simulator.simulator import Simulator
from timing.sram import largest_with_recompute, plan_sram
from wsc.compiler.compiled import Compiled
from wsc.compiler.scale import capture_both
from wsc.core.errors import ApplianceCompilationError, ConfigError
from wsc.core.loading import Loading
from wsc.core.micro_batches import (
    Explore,
    SizeRange,
    explored_sizes,
    largest_divisor,
    micro_batch_size,
)
from wsc.core.optimizer import OptimizerSpec

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class Recorded:
    """A traced step, compiled for one micro-batch size."""

    compiled: Compiled
    outputs: Any  # what the step returns to the loop: placeholders
    closures: list[Closure]
    recorder: Recorder


def optimizer_of(backend: Backend, recorded: Recorded) -> OptimizerSpec | None:
    """The optimizer of a step, None if it trains nothing.

    Raises ApplianceCompilationError for gradients that no optimizer takes.
    """
    assert backend.model is not None
    names = {id(parameter): name for name, parameter in backend.model.named_parameters()}
    optimizer = recorded.recorder.spec(names)
    if recorded.compiled.program.mode == "train" and optimizer is None:
        raise ApplianceCompilationError(
            "the step computes gradients but steps no optimizer",
            remedy="call optimizer.step() after loss.backward(), or leave backward() out",
        )
    return optimizer


def record_fitting(
    record: Callable[[Fit], Recorded], backend: Backend, batch_size: int, loading: Loading
) -> Recorded:
    """Record a step at the micro-batch size that was asked for.

    What does not fit the wafer is recomputed; where that is not enough, ``auto`` takes a smaller
    size. Raises ConfigError where the batch cannot be cut, ApplianceResourceExhausted where nothing
    fits.
    """
    requested = backends.csx.performance.micro_batch_size
    num_csx = backend.cluster_config.num_csx
    wafer = backend.cluster_config.cluster.machine.system
    if isinstance(requested, Explore):
        size = _fastest_size(record, backend, batch_size, requested.explore, loading)
    else:
        size = micro_batch_size(batch_size, requested, num_csx)
    recorded = record(Fit(size))
    largest = largest_with_recompute(recorded.compiled.program, wafer)
    if requested == "auto" and 0 < largest < size:
        log.info("Micro-batches of %d samples do not fit a %s", size, wafer.name)
        size = largest_divisor(batch_size, largest)
        recorded = record(Fit(size))
    sram_plan = plan_sram(recorded.compiled.program, wafer)
    if sram_plan.recomputed:
        layers = tuple(sram_plan.program.segments[index].layer for index in sram_plan.recomputed)
        log.info("To fit a %s, %d layers are recomputed", wafer.name, len(layers))
        recorded = record(Fit(size, layers))
    return recorded


def _fastest_size(
    record: Callable[[Fit], Recorded],
    backend: Backend,
    batch_size: int,
    allowed: SizeRange,
    loading: Loading,
) -> int:
    if backend.is_e2e_execution:
        raise ConfigError(
            "explore compares micro-batch sizes and runs nothing",
            where="csx.performance.micro_batch_size",
            rule="explore goes with compile_only",
            remedy="compile with --compile_only, then set the size that it names",
        )
    config = backend.cluster_config
    sizes = explored_sizes(batch_size, allowed, config.num_csx)
    optimizers: list[OptimizerSpec | None] = []

    def capture(size: int) -> Compiled:
        recorded = record(Fit(size))
        optimizers.append(optimizer_of(backend, recorded))
        return recorded.compiled

    program = capture_both(capture)
    simulator = Simulator.of(
        program, optimizers[0], config.cluster.machine, backend.size().num_servers, loading
    )
    trials = explore(simulator, batch_size, sizes, config.num_csx)
    best = fastest(trials)
    log.info("Explored micro-batch sizes:\n%s", exploration_table(trials))
    log.info("Fastest: csx.performance.micro_batch_size: %d", best.micro_batch_size)
    return best.micro_batch_size
