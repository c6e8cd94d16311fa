"""Wires between neighbours of a region with defects."""

from __future__ import annotations

from csnode.fabric.defects import Defects
from csnode.fabric.region import Fabric
from waferstream.machine.hardware import WSE2, WSE3, override

SMALL = override(WSE2, rows=10, columns=12)


def test_wires_go_around_a_dead_link() -> None:
    """One hop becomes three, and the turns cost cycles on a WSE-3."""
    link = ((0, 0), (0, 1))
    assert Fabric(2, 2, SMALL, Defects(links=frozenset({link}))).east_cycles[0, 0] == 3
    wse3 = override(WSE3, rows=10, columns=12)
    around = Fabric(2, 2, wse3, Defects(links=frozenset({link}))).east_cycles[0, 0]
    assert around == 3 * wse3.hop_cycles + 2 * wse3.turn_cycles
