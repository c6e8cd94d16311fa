"""What a round does to a machine in a given state, remembered.

The state of the machine is all its times, relative to now; a round's effect depends on nothing
else. After a few rounds a step is periodic, so of a thousand rounds only those few are walked, and
the result is the same to the picosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from wsc.timing.attribution import Attribution
from wsc.timing.timeline import State


class Walked(NamedTuple):
    """The effect of one round: how long it took, where the time went, and what state it left."""

    duration_ps: int
    attribution: Attribution
    state: State
    is_periodic: bool  # whether it found the state that it left


@dataclass
class RoundMemo:
    """Rounds walked so far, of machines that differ in nothing but the number of systems.

    A key is (program, depth of the tree in time, whether the round is the last of its step, state).
    """

    walked: dict[tuple[str, int, bool, State], Walked] = field(default_factory=dict)
