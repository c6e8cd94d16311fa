"""Layers that the clock adds up instead of walking them one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.timing import NodeTiming
from simulator.round_timing import FEWEST_ALIKE
from tests.support.clocks import (
    GIGA,
    MEGA,
    TERA,
    even_machines,
    make_clock,
    make_machine,
    make_program,
    run,
    shapes,
)
from wsc.core.program import Program

deep_programs = st.builds(
    make_program,
    layers=st.integers(FEWEST_ALIKE, 40),
    elements=st.sampled_from([1, 1000, MEGA, 100 * MEGA]),
    flops=st.sampled_from([0, GIGA, TERA, 100 * TERA]),
    micro_batches=st.integers(1, 9),
    input_elements=st.sampled_from([1, MEGA, 1000 * MEGA]),
)


def backward_first_layer_first(program: Program) -> Program:
    """The same, updated in the order of the forward pass: every layer may wait for its update."""
    forward = [s for s in program.segments if s.phase == "forward"]
    backward = [s for s in program.segments if s.phase == "backward"]
    order = enumerate([*forward, *reversed(backward)])
    return replace(program, segments=tuple(replace(s, index=index) for index, s in order))


@given(deep_programs, st.booleans(), shapes, even_machines)
@settings(max_examples=60, deadline=None)
def test_layers_that_are_added_up_cost_what_walking_them_costs(
    program: Program, is_usual: bool, shape: dict[str, Any], sections: dict[str, Any]
) -> None:
    """A clock that records walks every layer: times, attributions, and the steps that follow."""
    machine = make_machine(**sections)
    program = program if is_usual else backward_first_layer_first(program)
    walked, added_up = (
        make_clock(program, machine, record=record, **shape) for record in (True, False)
    )
    assert run(walked) == run(added_up)


def test_the_work_of_a_walk_does_not_grow_with_the_layers(monkeypatch) -> None:
    """Ten times as many layers start as many segments."""
    started = []
    run_segment = NodeTiming.run
    monkeypatch.setattr(NodeTiming, "run", lambda *args: (started.append(1), run_segment(*args))[1])
    counts = []
    for layers in (100, 1000):
        started.clear()
        run(make_clock(make_program(layers=layers)))
        counts.append(len(started))
    assert counts[0] == counts[1]
