"""Program of a fabric: routes of each colour, arrays of every PE, and the instructions of each PE.

PEs with the same instructions share a script, so the cost of building and running a program grows
with the number of scripts, not of PEs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.instructions import Instruction
from csnode.fabric.memory import Layout, SramArray
from csnode.fabric.operands import check_instruction
from csnode.fabric.region import Fabric
from waferstream.core.errors import ApplianceCompilationError

Selection = Any
"""Index into a [rows, columns] array: slices, integers, index arrays, or a boolean mask."""
EVERYWHERE: Selection = np.s_[:, :]


class Port(IntEnum):
    """Input or output of a router. Row 0 is north, column 0 is west."""

    NORTH = 0
    EAST = 1
    SOUTH = 2
    WEST = 3
    RAMP = 4

    @property
    def opposite(self) -> Port:
        """Port by which a wavelet that leaves here enters the neighbour."""
        return Port((self + 2) % 4)


NUM_PORTS = len(Port)


@dataclass(frozen=True)
class ColourRoutes:
    """Routes of one colour.

    ``outputs`` uint8 [switch positions, input ports, PEs] is a set of output ports, one bit each.
    ``last`` int8 [PEs] is the last switch position, ``ring`` bool [PEs] whether the first one
    follows it.
    """

    outputs: Array
    last: Array
    ring: Array


@dataclass(frozen=True)
class Script:
    """Instructions of one thread of the PEs in ``pes``."""

    pes: Array
    instructions: tuple[Instruction, ...]


class Program:
    """Program for one fabric, built step by step and then given to ``run``."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.layout = Layout(fabric.spec)
        self._grid = np.arange(fabric.num_pes).reshape(fabric.rows, fabric.columns)
        self._routes: dict[int, dict[int, Array]] = {}
        self._last: dict[int, Array] = {}
        self._ring: dict[int, Array] = {}
        # Number of a script, by that of the script which it continues (0: none) and what it adds.
        self._numbers: dict[tuple[int, tuple[Instruction, ...]], int] = {}
        self._script_of = np.zeros((fabric.spec.micro_threads, fabric.num_pes), dtype=np.int32)

    def array(
        self, name: str, length: int, dtype: Dtype = Dtype.FP32, bank: int | None = None
    ) -> SramArray:
        """Allocate an array in every PE; errors as in ``Layout.allocate``."""
        return self.layout.allocate(name, length, dtype, bank)

    def pes(self, selection: Selection) -> Array:
        """Return the row-major numbers of the selected PEs.

        Raises ApplianceCompilationError if one lies outside the fabric.
        """
        try:
            return np.atleast_1d(self._grid[selection]).ravel()
        except IndexError as error:
            raise ApplianceCompilationError(
                "PEs of a program must lie on its fabric",
                code="pe-outside-fabric",
                value=selection,
                rule=f"{self.fabric.rows} rows x {self.fabric.columns} columns",
            ) from error

    def route(
        self, colour: int, selection: Selection, source: Port, *outputs: Port, position: int = 0
    ) -> None:
        """Send wavelets from ``source`` to ``outputs`` while the switch is at ``position``.

        Raises ApplianceCompilationError for a colour or a switch position that does not exist.
        """
        spec = self.fabric.spec
        _check_number("colour", colour, spec.colours)
        _check_number("switch position", position, spec.switch_positions)
        pes = self.pes(selection)
        if colour not in self._routes:
            self._routes[colour] = {}
            self._last[colour] = np.zeros(self.fabric.num_pes, dtype=np.int8)
            self._ring[colour] = np.zeros(self.fabric.num_pes, dtype=np.bool_)
        tables = self._routes[colour]
        if position not in tables:
            tables[position] = _nothing(self.fabric)
        tables[position][source, pes] |= sum(1 << port for port in set(outputs))
        self._last[colour][pes] = np.maximum(self._last[colour][pes], position)

    def ring_mode(self, colour: int, selection: Selection) -> None:
        """Make the first switch position follow the last one."""
        self._ring[colour][self.pes(selection)] = True

    def do(self, selection: Selection, *instructions: Instruction, thread: int = 0) -> None:
        """Append ``instructions`` to a thread of the selected PEs.

        Raises:
            ApplianceCompilationError: A stream is not a whole number of words, operands do not fit
                each other, or an instruction uses a colour without routes.
        """
        _check_number("thread", thread, self.fabric.spec.micro_threads)
        for instruction in instructions:
            self._check(instruction)
        pes = self.pes(selection)
        script_of = self._script_of[thread]
        for before in np.unique(script_of[pes]):
            after = (int(before), instructions)
            number = self._numbers.setdefault(after, len(self._numbers) + 1)
            same = pes[script_of[pes] == before]
            script_of[same] = number

    @property
    def scripts(self) -> list[Script]:
        """All scripts that some PE runs, thread by thread."""
        parts = {number: part for part, number in self._numbers.items()}
        return [
            Script(np.nonzero(script_of == number)[0], _instructions(parts, int(number)))
            for script_of in self._script_of
            for number in np.unique(script_of[script_of > 0])
        ]

    @property
    def colours(self) -> list[int]:
        """Colours with routes, in the order of their numbering in the simulator."""
        return list(self._routes)

    @property
    def routes(self) -> dict[int, ColourRoutes]:
        """Routes of all colours."""
        return {
            colour: ColourRoutes(
                np.stack([tables.get(p, _nothing(self.fabric)) for p in range(max(tables) + 1)]),
                self._last[colour],
                self._ring[colour],
            )
            for colour, tables in self._routes.items()
        }

    def _check(self, instruction: Instruction) -> None:
        for name in ("receive", "send"):
            colour = getattr(instruction, name, None)
            if colour is not None and colour not in self._routes:
                raise ApplianceCompilationError(
                    "a colour must have routes before an instruction uses it",
                    code="colour-without-route",
                    where=type(instruction).__name__,
                    value=colour,
                    rule="call route(colour, ...) before do(...)",
                )
        check_instruction(instruction)


def _instructions(
    parts: dict[int, tuple[int, tuple[Instruction, ...]]], number: int
) -> tuple[Instruction, ...]:
    """Return the instructions of a script by following it back to its beginning, number 0."""
    backward = []
    while number:
        number, part = parts[number]
        backward.append(part)
    return tuple(instruction for part in reversed(backward) for instruction in part)


def _nothing(fabric: Fabric) -> Array:
    return np.zeros((NUM_PORTS, fabric.num_pes), dtype=np.uint8)


def _check_number(what: str, number: int, limit: int) -> None:
    if not 0 <= number < limit:
        raise ApplianceCompilationError(
            f"{what} must be 0 to {limit - 1}; got {number}",
            code=f"{what.replace(' ', '-')}-out-of-range",
            value=number,
            rule=f"0 to {limit - 1}",
        )
