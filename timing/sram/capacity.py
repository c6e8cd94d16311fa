"""How many samples fit a wafer, the more of the layers are recomputed.

Every footprint is a line over the samples, and recomputing one more segment moves a few of them. So
one pass over a program tells for every number of segments what ``recompute`` and ``moments`` would.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from timing.hardware import WaferSpec
from timing.sram.buffers import Buffers
from timing.sram.liveness import Life, lives, moments_of
from timing.sram.recompute import first_user, internals_of, saving
from timing.sram.sram import data_bytes
from wsc.core.program import Footprint, Program

Lines = npt.NDArray[np.int64]
"""[segments, 2]: fixed bytes, and bytes of each sample."""


def capacities(program: Program, wafer: WaferSpec) -> tuple[int, ...]:
    """Samples of the largest micro-batch with none, one, two ... of ``recomputable`` recomputed.

    0 where not even one fits. Raises ConfigError for a wafer without room for data.
    """
    sram = _Sram(program, wafer)
    found = [sram.capacity()]
    for index in saving(program, sram.internals):
        sram.recompute(index)
        found.append(sram.capacity())
    return tuple(found)


class _Sram:
    """What lies there while each segment runs."""

    def __init__(self, program: Program, wafer: WaferSpec) -> None:
        stash = tuple(lives(program))
        found = moments_of(program, stash)
        self.internals = internals_of(program, stash)
        self._segments = program.segments
        self._room = data_bytes(wafer)
        self._stash = _lines(moment.stash for moment in found)
        self._working = _lines(moment.working for moment in found)
        self._buffers = Buffers(program, wafer)
        self._lives = {name: life for life in stash for name in life.stash.values}
        self._until = {id(life): life.readers[-1] for life in self._lives.values()}

    def capacity(self) -> int:
        """Samples that fit."""
        fixed, sample = (self._stash + self._working).T
        left = np.maximum(0, self._room - np.array(self._buffers.num_bytes) - fixed)
        return int((left // np.maximum(1, sample)).min())

    def recompute(self, index: int) -> None:
        """Keep the inputs of a forward segment until it runs again, but not its internals."""
        forward, internals = self._segments[index], self.internals[index]
        user = first_user(internals)
        made = _lines(life.footprint for life in internals).sum(axis=0)
        self._stash[index + 1 : user + 1] -= made
        self._working[user] = np.maximum(self._working[index], self._working[user] + made)
        for life in filter(None, map(self._lives.get, forward.inputs)):
            self._keep(life, user)
        self._buffers.stream_again(forward.weights, user)

    def _keep(self, life: Life, user: int) -> None:
        until = self._until[id(life)]
        if until < user:
            self._stash[until + 1 : user + 1] += _line(life.footprint)
            self._until[id(life)] = user


def _lines(footprints: Iterable[Footprint]) -> Lines:
    return np.array([_line(footprint) for footprint in footprints], dtype=np.int64)


def _line(footprint: Footprint) -> tuple[int, int]:
    return footprint.fixed_bytes, footprint.sample_bytes
