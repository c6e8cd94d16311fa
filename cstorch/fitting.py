"""From ``csx.performance.micro_batch_size`` to a program whose micro-batches fit the wafer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.exploration import exploration_table, explore, fastest
from appliance.simulation import Simulator
from cstorch import backends
from cstorch.backend import Backend
from cstorch.loop import Closure
from cstorch.micro_batches import (
    Explore,
    SizeRange,
    explored_sizes,
    largest_divisor,
    micro_batch_size,
)
from cstorch.optim.recorder import Recorder
from wsc.compiler.compiled import Compiled
from wsc.compiler.scale import capture_both
from wsc.core.errors import ConfigError
from wsc.timing.placement import Placement, check_fits, largest_micro_batch

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class Recorded:
    """A traced step, compiled for one micro-batch size."""

    compiled: Compiled
    outputs: Any  # what the step returns to the loop: placeholders
    closures: list[Closure]
    recorder: Recorder


def record_fitting(
    record: Callable[[int], Recorded], backend: Backend, batch_size: int
) -> Recorded:
    """Record a step at the micro-batch size that was asked for.

    ``auto`` takes a smaller size where its first choice does not fit the wafer. Raises ConfigError
    where the batch cannot be cut, ApplianceResourceExhausted where nothing fits.
    """
    requested = backends.csx.performance.micro_batch_size
    num_csx = backend.cluster_config.num_csx
    wafer = backend.cluster_config.cluster.machine.system
    if isinstance(requested, Explore):
        return record(_fastest_size(record, backend, batch_size, requested.explore))
    recorded = record(micro_batch_size(batch_size, requested, num_csx))
    program = recorded.compiled.program
    largest = largest_micro_batch(program, wafer)
    if requested == "auto" and 0 < largest < program.micro_batch_size:
        log.info(
            "Micro-batches of %d samples do not fit a %s", program.micro_batch_size, wafer.name
        )
        recorded = record(largest_divisor(batch_size, largest))
    check_fits(Placement(recorded.compiled.program, wafer))
    return recorded


def _fastest_size(
    record: Callable[[int], Recorded], backend: Backend, batch_size: int, allowed: SizeRange
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
    simulator = Simulator(
        capture_both(lambda size: record(size).compiled),
        config.cluster.machine,
        backend.size().num_servers,
    )
    trials = explore(simulator, batch_size, sizes, config.num_csx)
    best = fastest(trials)
    log.info("Explored micro-batch sizes:\n%s", exploration_table(trials))
    log.info("Fastest: csx.performance.micro_batch_size: %d", best.micro_batch_size)
    return best.micro_batch_size
