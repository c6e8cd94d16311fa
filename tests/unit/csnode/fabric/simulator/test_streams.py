"""Streams between memory and fabric."""

from __future__ import annotations

import numpy as np
import pytest

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.broadcast import do_bus, route_bus
from csnode.fabric.collectives.reduce import add_reduce
from csnode.fabric.collectives.trees import chain
from csnode.fabric.dtypes import Dtype
from csnode.fabric.instructions import Control, Stream, receive
from csnode.fabric.program import Port, Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from tests.support.errors import raises
from tests.support.timing.fabric import line
from waferstream.core.errors import ApplianceCompilationError

RANDOM = np.random.default_rng(11)


def test_stream_refuses_a_control_wavelet() -> None:
    """A stream ends by its length, so a control wavelet in it is an error."""
    program = Program(Fabric(1, 2))
    x = program.array("x", 2)
    program.route(0, (0, 0), Port.RAMP, Port.EAST)
    program.route(0, (0, 1), Port.WEST, Port.RAMP)
    program.do((0, 0), Control(0, to_cores=True))
    program.do((0, 1), receive(x.whole, 0))
    with raises(ApplianceCompilationError, "control-in-stream"):
        run(program, {})


def test_stream_combines_by_maximum() -> None:
    """A chain of maxima along a row, as a softmax over PEs uses it."""
    program = Program(Fabric(2, 5))
    x = program.array("x", 3)
    add_reduce(program, paths.rows(program.fabric), chain(5), x.whole, (0, 1), combine="maximum")
    data = RANDOM.normal(size=(2, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(program, {"x": data}).read("x")[:, 0], data.max(axis=1))


def test_stream_reads_a_strided_operand() -> None:
    """A stream sends every third element; the receiver stores them consecutively."""
    program = Program(Fabric(1, 2))
    x = program.array("x", 9)
    program.route(0, (0, 0), Port.RAMP, Port.EAST)
    program.route(0, (0, 1), Port.WEST, Port.RAMP)
    program.do((0, 0), Stream(operand=x[::3], send=0))
    program.do((0, 1), receive(x[:3], 0))
    data = np.stack([np.arange(9), np.zeros(9)])[None]
    np.testing.assert_array_equal(run(program, {"x": data}).read("x")[0, 1, :3], [0, 3, 6])


def test_stream_refuses_a_second_receiver_of_a_colour() -> None:
    """Two receivers would share the words arbitrarily."""
    program, x = line(2, 4)
    program.do((0, 1), receive(x.whole, 0))
    program.do((0, 1), receive(x.whole, 0), thread=1)
    with raises(ApplianceCompilationError, "colour-received-twice"):
        run(program, {})


@pytest.mark.parametrize("dtype", list(Dtype))
def test_stream_fills_columns_of_a_matrix(dtype: Dtype) -> None:
    """Three rows of four go into columns 2 to 5 of rows of eight; other elements stay."""
    program = Program(Fabric(1, 2))
    part, whole = program.array("part", 12, dtype), program.array("whole", 24, dtype)
    columns, line = whole.columns(2, 6, width=8), paths.rows(program.fabric)
    route_bus(program, line, 0)
    do_bus(program, line, 1, part.whole, columns, 0)
    found = run(program, {"part": np.arange(1, 13), "whole": -1.0})
    expected = -np.ones((2, 3, 8))
    expected[:, :, 2:6] = np.arange(1, 13).reshape(3, 4)
    np.testing.assert_array_equal(found.read("whole").reshape(2, 3, 8), expected)
    rows = found.memory.read(np.array([0, 1]), columns).reshape(2, 3, 4)
    np.testing.assert_array_equal(rows, expected[:, :, 2:6])
