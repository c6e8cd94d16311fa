"""Rounds that the clock remembers instead of walking them again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from simulator.cluster_timing import ClusterTiming, RoundCache, RoundKey
from simulator.costed_program import CostedProgram
from simulator.periodicity import Effect
from tests.support.clocks import (
    ADAMW,
    even_machines,
    make_clock,
    make_machine,
    make_program,
    programs,
    run,
    shapes,
    slow_roles,
)
from wsc.core.program import Mode, Program, plan_streams


@given(programs, shapes, even_machines, slow_roles)
@settings(max_examples=100, deadline=None)
def test_rounds_that_are_remembered_cost_what_walking_them_costs(
    program: Program, shape: dict[str, Any], sections: dict[str, Any], slow: dict[str, float]
) -> None:
    """A clock that records walks every round; one that does not may fold equal rounds.

    Evaluation in between shares servers, links and systems with training.
    """
    machine = make_machine(**sections, jitter={"stragglers": slow})
    forward = [segment for segment in program.segments if segment.phase == "forward"]
    evaluation = replace(program, mode="eval", segments=tuple(forward))
    walked, folded = (
        make_clock(program, machine, record=record, others=[evaluation], **shape)
        for record in (True, False)
    )
    modes: list[Mode] = ["train", "train", "eval", "train", "eval", "eval", "train"]
    for step, mode in enumerate(modes, 1):
        assert walked.step(mode, step) == folded.step(mode, step)


@pytest.mark.parametrize("slow", [{}, {"csx-2": 2.0}, {"br-1": 40.0}, {"wgt-0": 3.0}])
def test_clocks_of_different_sizes_share_what_they_walked(slow: dict[str, float]) -> None:
    """Sharing the cache changes no time, whatever sizes and stragglers were walked before."""
    program, machine = make_program(micro_batches=24), make_machine(jitter={"stragglers": slow})
    cache: RoundCache = {}
    for num_nodes in (1, 2, 3, 5, 8, 24):
        shared = ClusterTiming(machine, num_nodes, 1, cache=cache)
        shared.follow(
            CostedProgram.of(program, plan_streams(program, 1), shared.machine, update=ADAMW)
        )
        assert run(shared) == run(make_clock(program, machine, num_nodes=num_nodes, record=True))


class _CountingCache(dict[RoundKey, Effect]):
    """Counts how often it is asked."""

    asked = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize("num_servers", [1, 9])
@pytest.mark.parametrize("dram_bytes", [1, 4 * 3 * 1000, 10**12])
def test_a_thousand_rounds_are_not_walked_one_by_one(dram_bytes: int, num_servers: int) -> None:
    """Neither walks nor rounds looked up grow with their number, for a step soon is periodic.

    With all in flash, with about the masters alone in DRAM, and with all in DRAM; also where three
    of nine servers have no parameter to stream.
    """
    machine = make_machine(memoryx={"dram_bytes": dram_bytes, "flash_bytes": 10**9})
    walks, lookups = [], []
    for micro_batches in (100, 2000):
        program = make_program(elements=1000, micro_batches=micro_batches)
        cache = _CountingCache()
        clock = ClusterTiming(machine, 1, num_servers, cache=cache)
        plan = plan_streams(program, num_servers)
        clock.follow(CostedProgram.of(program, plan, clock.machine, update=ADAMW))
        run(clock)
        walks.append(len(cache))
        lookups.append(cache.asked)
    assert walks[0] == walks[1] < 40
    assert lookups[0] == lookups[1] < 80
