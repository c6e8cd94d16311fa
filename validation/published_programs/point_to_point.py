"""A message from one PE to another."""

from __future__ import annotations

from timing.hardware.fabric import FabricSpec


def message(fabric: FabricSpec, hops: int, wavelets: int, turns: int = 0) -> float:
    """Cycles from a send to the receiver's task with the last wavelet.

    ``fixed + hops + turns + wavelets``, each at its own cost (K0090 to K0097, a WSE-3; the fixed
    part of a WSE-2 is not published and taken from there).
    """
    return (
        fabric.message_cycles
        + fabric.hop_cycles * hops
        + fabric.turn_cycles * turns
        + fabric.cycles_per_wavelet * wavelets
    )
