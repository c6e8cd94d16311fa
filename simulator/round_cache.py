"""What a round does to a machine in a given state, remembered.

The state of the machine is all its times, relative to now; a round's effect depends on nothing
else. After a few rounds a step is periodic, so of a thousand rounds only those few are walked, and
the result is the same to the picosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from timing.attribution import Attribution
from timing.timeline import State


class Walked(NamedTuple):
    """The effect of one round: how long it took, where the time went, and what state it left."""

    duration_ps: int
    attribution: Attribution
    state: State
    is_periodic: bool  # whether it found the state that it left


class RoundKey(NamedTuple):
    """All that decides what a round does, of machines that differ in their number of systems alone.

    That number shows in the depth of the tree, and in which stragglers there are: a slow switch
    slows the links, a slow system stretches the kernels of the rounds in which it is busy.
    """

    costed: str
    latency_ps: int
    link_bytes_per_s: int
    kernel_factor: float
    is_last: bool  # of its step
    state: State


@dataclass
class RoundMemo:
    """Rounds walked so far."""

    walked: dict[RoundKey, Walked] = field(default_factory=dict)
