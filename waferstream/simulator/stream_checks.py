"""The no-stall condition of a costed step, and the share of zeros with which it would hold.

Zeros shorten streams and computing alike, by closed forms that are not proportional to the density:
an index comes with every value, PEs wait for others that have more non-zeros, and parts of
activations take their time on the wire. So the step is costed at each of a row of shares of zeros,
the same for all weights that products multiply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from waferstream.core.program.schedule import schedule_of
from waferstream.core.program.stream_plan import plan_streams
from waferstream.machine.cost import segment_costs
from waferstream.machine.densities import StepSparsity, multiplied_weights, sparse_plan
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.stalls import StreamCheck, check_streams
from waferstream.simulator.costed_program import CostedProgram

TRIED_SHARES = (*(round(0.05 * step, 2) for step in range(20)), 0.98, 0.99)
"""Shares of zeros that are tried as a remedy."""


def checked_streams(costed: CostedProgram, machine: MachineSpec) -> tuple[StreamCheck, ...]:
    """Return the condition of every segment, in order of execution.

    A check that fails has the tried density nearest to its own at which it would hold.
    """
    checks = check_streams(
        costed.program, costed.schedule, costed.costs, machine, costed.densities, costed.paged
    )
    failing = {index: check for index, check in enumerate(checks) if not check.holds}
    if not failing:
        return checks
    trials = _tried(costed, machine, [*failing])
    found = {
        index: replace(check, sufficient_density=_nearest(check.density, place, trials))
        for place, (index, check) in enumerate(failing.items())
    }
    return tuple(found.get(index, check) for index, check in enumerate(checks))


def _tried(
    costed: CostedProgram, machine: MachineSpec, segments: Sequence[int]
) -> Mapping[float, tuple[StreamCheck, ...]]:
    """Return the checks of some segments by the density of all weights that products multiply.

    The layout of the wafer is that of the whole step.
    """
    program, names = costed.program, multiplied_weights(costed.program)
    some = replace(program, segments=tuple(program.segments[index] for index in segments))
    paged = [costed.paged[index] for index in segments] if costed.paged else ()
    plan = plan_streams(some, 1)
    found = {}
    for share in TRIED_SHARES:
        density = round(1 - share, 2)
        densities = dict.fromkeys(names, density)
        schedule = schedule_of(some, sparse_plan(plan, StepSparsity(densities)))
        costs = segment_costs(program, machine.system, densities)
        own = [costs[index] for index in segments]
        found[density] = check_streams(some, schedule, own, machine, densities, paged)
    return found


def _nearest(
    density: float, place: int, trials: Mapping[float, tuple[StreamCheck, ...]]
) -> float | None:
    """Return the tried density nearest to ``density`` at which a segment does not stall."""
    sufficient = [tried for tried, checks in trials.items() if checks[place].holds]
    return min(sufficient, key=lambda tried: abs(tried - density), default=None)
