"""PEs of a line broadcast their tiles in turn, while the tiles before are computed with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from csnode.fabric.collectives import do_bus, paths, route_bus
from csnode.fabric.instructions import Instruction, Signal, Wait
from csnode.fabric.memory import Slice, SramArray
from csnode.fabric.program import Program

_BUFFERS = 2


@dataclass(frozen=True)
class Turns:
    """One operand that moves along ``line``, on a thread and two events of its own.

    In step k position k sends ``mine`` to all others, into one of two ``buffers``. Operand
    ``number`` uses thread ``number + 1``; thread 0 computes.
    """

    line: paths.Path
    mine: Slice
    buffers: tuple[Slice, ...]
    number: int

    @classmethod
    def along_rows(cls, program: Program, mine: SramArray, number: int) -> Turns:
        """``mine`` of each column in turn, to all PEs of its row."""
        return cls._of(program, paths.rows(program.fabric), mine, number)

    @classmethod
    def down_columns(cls, program: Program, mine: SramArray, number: int) -> Turns:
        """``mine`` of each row in turn, to all PEs of its column."""
        return cls._of(program, paths.columns(program.fabric), mine, number)

    @classmethod
    def _of(cls, program: Program, line: paths.Path, mine: SramArray, number: int) -> Turns:
        bank = mine.whole.bank(program.fabric.spec.sram_banks)
        buffers = (
            program.array(f"{mine.name} {k}", mine.length, mine.dtype, bank).whole
            for k in range(_BUFFERS)
        )
        return cls(line, mine.whole, tuple(buffers), number)

    @property
    def wait(self) -> Instruction:
        """Until the tile of the next step is here."""
        return Wait(self._filled)

    def add(self, program: Program, colour: int) -> None:
        """The routes, and the thread that takes tiles in as buffers become free."""
        route_bus(program, self.line, colour)
        everywhere, thread = self.line.between(0, self.line.length), self.number + 1
        for step in range(self.line.length):
            if step >= _BUFFERS:
                program.do(everywhere, Wait(self._freed), thread=thread)
            buffer = self.buffers[step % _BUFFERS]
            do_bus(program, self.line, step, self.mine, buffer, colour, thread)
            program.do(everywhere, Signal(self._filled), thread=thread)

    def operands(self, step: int) -> Iterator[tuple[slice, Slice]]:
        """Ranges of positions, and where each has the tile of this step."""
        buffer = self.buffers[step % _BUFFERS]
        yield slice(step, step + 1), self.mine
        if step:
            yield slice(0, step), buffer
        if step + 1 < self.line.length:
            yield slice(step + 1, None), buffer

    def release(self, step: int) -> tuple[Instruction, ...]:
        """After a product: the buffer of this step may be filled again, if it will be."""
        return (Signal(self._freed),) if step + _BUFFERS < self.line.length else ()

    @property
    def _filled(self) -> int:
        return 2 * self.number

    @property
    def _freed(self) -> int:
        return 2 * self.number + 1
