"""Equal layers are multiplied instead of executed one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.timing import NodeTiming
from tests.support.timing.cluster_timings import (
    GIGA,
    MEGA,
    TERA,
    even_machines,
    make_machine,
    make_program,
    make_timing,
    run,
    shapes,
)
from waferstream.core.program.program import Program
from waferstream.machine.record import Record
from waferstream.simulator.round_timing import FEWEST_ALIKE

deep_programs = st.builds(
    make_program,
    layers=st.integers(FEWEST_ALIKE, 40),
    elements=st.sampled_from([1, 1000, MEGA, 100 * MEGA]),
    flops=st.sampled_from([0, GIGA, TERA, 100 * TERA]),
    micro_batches=st.integers(1, 9),
    input_elements=st.sampled_from([1, MEGA, 1000 * MEGA]),
)


def backward_first_layer_first(program: Program) -> Program:
    """Return the program updated in forward order: every layer may wait for its update."""
    forward = [s for s in program.segments if s.phase == "forward"]
    backward = [s for s in program.segments if s.phase == "backward"]
    order = enumerate([*forward, *reversed(backward)])
    return replace(program, segments=tuple(replace(s, index=index) for index, s in order))


@given(deep_programs, st.booleans(), shapes, even_machines)
@settings(max_examples=60, deadline=None)
def test_multiplied_layers_take_the_time_of_executed_ones(
    program: Program, is_usual: bool, shape: dict[str, Any], sections: dict[str, Any]
) -> None:
    """A timing model that records executes every layer: times, attributions, later steps."""
    machine = make_machine(**sections)
    program = program if is_usual else backward_first_layer_first(program)
    executed, multiplied = (
        make_timing(program, machine, record=record, **shape) for record in (Record(), None)
    )
    assert run(executed) == run(multiplied)


def test_executed_segments_do_not_grow_with_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as many layers start as many segments."""
    started: list[int] = []
    run_segment = NodeTiming.run

    def count(*args: Any) -> Any:
        started.append(1)
        return run_segment(*args)

    monkeypatch.setattr(NodeTiming, "run", count)
    counts = []
    for layers in (100, 1000):
        started.clear()
        run(make_timing(make_program(layers=layers)))
        counts.append(len(started))
    assert counts[0] == counts[1]
