"""An operand of a product whose parts the PEs of a line broadcast to each other, one by one.

While one part is multiplied, the next is on its way; ``timing.kernels.resident`` has the closed
form.
"""

from __future__ import annotations

from dataclasses import dataclass

from csnode.fabric.collectives import do_bus, paths, route_bus
from csnode.fabric.instructions import Instruction, Signal, Wait
from csnode.fabric.memory import Slice, SramArray
from csnode.fabric.program import Program

_BUFFERS = 2


@dataclass(frozen=True)
class MovingOperand:
    """It moves along ``line``, on a thread and two events of its own.

    In each step a position sends one of its ``parts`` to all, or each of several positions its
    only one: ``buffers[k]`` has the places of what arrives in one step, ``received[k]`` all of
    them as one operand. That of ``number`` n uses thread n + 1; thread 0 computes.
    """

    line: paths.Path
    parts: tuple[Slice, ...]
    buffers: tuple[tuple[Slice, ...], ...]
    received: tuple[Slice, ...]
    number: int

    @classmethod
    def in_parts(
        cls, program: Program, line: paths.Path, mine: SramArray, number: int, parts: int
    ) -> MovingOperand:
        """``mine`` of each position in equal ``parts``, one in a step; a line of one sends none."""
        length = mine.length // parts
        slices = tuple(mine[k * length : (k + 1) * length] for k in range(parts))
        if line.length == 1:
            return cls(line, slices, tuple((part,) for part in slices), slices, number)
        wholes = tuple(array.whole for array in _buffers(program, mine, length))
        return cls(line, slices, tuple((whole,) for whole in wholes), wholes, number)

    @classmethod
    def in_blocks(
        cls, program: Program, line: paths.Path, mine: SramArray, number: int, rows: int, block: int
    ) -> MovingOperand:
        """``mine`` has ``rows``; those of ``block`` positions, side by side, are one step's."""
        width = mine.length // rows
        arrays = _buffers(program, mine, mine.length * block)
        buffers = (
            tuple(a.columns(k * width, (k + 1) * width, block * width) for k in range(block))
            for a in arrays
        )
        return cls(line, (mine.whole,), tuple(buffers), tuple(a.whole for a in arrays), number)

    @property
    def steps(self) -> int:
        """Parts of all positions, over those of a step."""
        return self.line.length * len(self.parts) // len(self.buffers[0])

    @property
    def wait(self) -> Instruction:
        """Until the operand of the next step is here."""
        return Wait(self._filled)

    def at(self, step: int) -> Slice:
        """What of it is here in a step."""
        return self.received[step % len(self.received)]

    def release(self, step: int) -> tuple[Instruction, ...]:
        """After a product: the buffer of this step may be filled again, if it will be."""
        return (Signal(self._freed),) if step + _BUFFERS < self.steps else ()

    def add(self, program: Program, colour: int) -> None:
        """The routes, and the thread that takes parts in as buffers become free."""
        route_bus(program, self.line, colour)
        everywhere, thread = self.line.between(0, self.line.length), self.number + 1
        for step in range(self.steps):
            if step >= _BUFFERS:
                program.do(everywhere, Wait(self._freed), thread=thread)
            places = self.buffers[step % len(self.buffers)]
            for turn, into in enumerate(places, start=step * len(places)):
                root, part = divmod(turn, len(self.parts))
                do_bus(program, self.line, root, self.parts[part], into, colour, thread)
            program.do(everywhere, Signal(self._filled), thread=thread)

    @property
    def _filled(self) -> int:
        return 2 * self.number

    @property
    def _freed(self) -> int:
        return 2 * self.number + 1


def _buffers(program: Program, mine: SramArray, length: int) -> tuple[SramArray, ...]:
    bank = mine.whole.bank(program.fabric.spec.sram_banks)
    return tuple(
        program.array(f"{mine.name} {k}", length, mine.dtype, bank) for k in range(_BUFFERS)
    )
