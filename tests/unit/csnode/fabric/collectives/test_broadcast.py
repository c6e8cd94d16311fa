"""Buses on which PEs send in turn."""

from __future__ import annotations

import numpy as np
import pytest

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.broadcast import do_bus, route_bus
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from tests.support.timing.fabric import whole_numbers


@pytest.mark.parametrize("num_pes", [1, 2, 5])
def test_bus_lets_all_positions_send_in_turn(num_pes: int) -> None:
    """Each root sends to all on one colour, as in SUMMA; a line of one PE does nothing."""
    fabric = Fabric(2, num_pes)
    program = Program(fabric)
    own, gathered = program.array("own", 6), program.array("all", 6 * num_pes)
    line = paths.rows(fabric)
    route_bus(program, line, 0)
    for root in range(num_pes):
        do_bus(program, line, root, own.whole, gathered[6 * root : 6 * root + 6], 0)
    data = whole_numbers(fabric, 6)
    found = run(program, {"own": data}).read("all").reshape(2, num_pes, num_pes, 6)
    expected = data[:, None] if num_pes > 1 else 0 * data[:, None]
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))
