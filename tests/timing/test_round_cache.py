"""Equal rounds are executed once and their effect is cached."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from tests.support.timing.cluster_timings import (
    ADAMW,
    even_machines,
    make_machine,
    make_program,
    make_timing,
    programs,
    run,
    shapes,
    slow_roles,
)
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.program.stream_plan import plan_streams
from waferstream.machine.record import Record
from waferstream.simulator.cluster_timing import ClusterTiming, RoundCache, RoundKey
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.periodicity import Effect


@given(programs, shapes, even_machines, slow_roles)
@settings(max_examples=100, deadline=None)
def test_cached_rounds_take_the_time_of_executed_ones(
    program: Program, shape: dict[str, Any], sections: dict[str, Any], slow: dict[str, float]
) -> None:
    """A timing model that records executes every round; others skip equal ones.

    Evaluation in between shares servers, links and systems with training.
    """
    machine = make_machine(**sections, jitter={"stragglers": slow})
    forward = [segment for segment in program.segments if segment.phase == "forward"]
    evaluation = replace(program, kind=ProgramKind.EVAL, segments=tuple(forward))
    executed, cached = (
        make_timing(program, machine, record=record, others=[evaluation], **shape)
        for record in (Record(), None)
    )
    for step, word in enumerate(["train", "train", "eval", "train", "eval", "eval", "train"], 1):
        kind = ProgramKind(word)
        assert executed.step(kind, step) == cached.step(kind, step)


@pytest.mark.parametrize("slow", [{}, {"csx-2": 2.0}, {"br-1": 40.0}, {"wgt-0": 3.0}])
def test_round_cache_is_shared_by_clusters_of_different_sizes(slow: dict[str, float]) -> None:
    """Sharing the cache changes no time, for any earlier sizes and stragglers."""
    program, machine = make_program(micro_batches=24), make_machine(jitter={"stragglers": slow})
    cache: RoundCache = {}
    for num_nodes in (1, 2, 3, 5, 8, 24):
        shared = ClusterTiming(machine, num_nodes, 1, cache=cache)
        shared.load_program(
            CostedProgram.of(program, plan_streams(program, 1), shared.machine, update=ADAMW)
        )
        assert run(shared) == run(
            make_timing(program, machine, num_nodes=num_nodes, record=Record())
        )


class _CountingCache(dict[RoundKey, Effect]):
    """Counts how often it is asked."""

    asked = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize("num_servers", [1, 9])
@pytest.mark.parametrize("dram_bytes", [1, 4 * 3 * 1000, 10**12])
def test_executed_rounds_do_not_grow_with_the_rounds(dram_bytes: int, num_servers: int) -> None:
    """Neither executions nor look-ups grow with their number, because a step soon is periodic.

    With all in flash, with about the masters alone in DRAM, and with all in DRAM; also where three
    of nine servers have no parameter to stream.
    """
    machine = make_machine(memoryx={"dram_bytes": dram_bytes, "flash_bytes": 10**9})
    executions, lookups = [], []
    for micro_batches in (100, 2000):
        program = make_program(elements=1000, micro_batches=micro_batches)
        cache = _CountingCache()
        cluster = ClusterTiming(machine, 1, num_servers, cache=cache)
        plan = plan_streams(program, num_servers)
        cluster.load_program(CostedProgram.of(program, plan, cluster.machine, update=ADAMW))
        run(cluster)
        executions.append(len(cache))
        lookups.append(cache.asked)
    assert executions[0] == executions[1] < 40
    assert lookups[0] == lookups[1] < 80
