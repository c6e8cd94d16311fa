"""Programs and data that cannot run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from csnode.fabric.dtypes import Dtype
from csnode.fabric.instructions import Delay, Stream, receive, send
from csnode.fabric.memory import SramArray
from csnode.fabric.program import Port, Program
from csnode.fabric.simulator.execution import run
from tests.support.errors import raises
from tests.support.timing.fabric import line
from waferstream.core.errors import ApplianceCompilationError, ApplianceDeadlockError


def test_run_reports_a_receive_without_sender() -> None:
    """The error names the PE and the instruction that waits."""
    program, x = line(2)
    program.do((0, 1), receive(x.whole, 0))
    with raises(ApplianceDeadlockError, "threads-wait-forever") as caught:
        run(program, {})
    assert "PE 1 at Stream" in str(caught.value.where)


def test_run_reports_wavelets_left_over() -> None:
    """All threads end while wavelets wait in front of a core."""
    program, x = line(2, 2)
    program.do((0, 0), send(x.whole, 0))
    with raises(ApplianceDeadlockError, "wavelets-left-over"):
        run(program, {})


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda p, x: p.route(24, (0, 0), Port.RAMP, Port.EAST), "colour-out-of-range"),
        (
            lambda p, x: p.route(0, (0, 0), Port.RAMP, Port.EAST, position=4),
            "switch-position-out-of-range",
        ),
        (lambda p, x: p.route(0, (0, 9), Port.RAMP, Port.EAST), "pe-outside-fabric"),
        (lambda p, x: p.do((0, 0), send(x.whole, 5)), "colour-without-route"),
        (lambda p, x: p.do((0, 0), Stream(send=0)), "stream-operands-mismatch"),
        (lambda p, x: p.do((0, 0), Stream(store=x.whole, send=0)), "stream-without-source"),
        (lambda p, x: p.do((0, 0), send(x[:3], 0)), "stream-partial-word"),
        (lambda p, x: p.do((0, 0), Delay(1), thread=8), "thread-out-of-range"),
        (lambda p, x: p.route(0, (0, 1), Port.RAMP, Port.EAST), "route-leaves-region"),
        (lambda p, x: p.route(1, (0, 0), Port.RAMP, Port.EAST), "route-without-next-hop"),
    ],
)
def test_run_refuses_wrong_programs(build: Callable[[Program, SramArray], None], code: str) -> None:
    """Every broken rule has its own code."""
    program, x = line(2, 4, dtype=Dtype.FP16)

    def build_and_run() -> None:
        build(program, x)
        run(program, {})

    with raises(ApplianceCompilationError, code):
        build_and_run()


def test_run_refuses_data_that_fit_no_array() -> None:
    """Unknown names and wrong shapes are refused before anything runs."""
    program, _ = line(2, 4)
    with raises(ApplianceCompilationError, "unknown-array"):
        run(program, {"y": [0]})
    with raises(ApplianceCompilationError, "array-data-shape"):
        run(program, {"x": np.zeros(5)})


def test_run_refuses_a_colour_without_ramp_route() -> None:
    """A PE can neither send nor receive on a colour that only passes it."""
    for op, code in ((send, "send-without-ramp-route"), (receive, "receive-without-ramp-route")):
        program, x = line(3, 2)
        program.do((0, 1), op(x.whole, 0))
        with raises(ApplianceCompilationError, code):
            run(program, {})
