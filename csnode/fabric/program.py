"""A program: routes of each colour, arrays of every PE, and for each PE the role that it plays.

PEs with the same instructions share a role, so building and running cost per role, not per PE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Axpy, Instruction, Stream
from csnode.fabric.memory import Layout, SramArray
from csnode.fabric.routing import NUM_PORTS, ColourRoutes, Port
from wsc.core.errors import ApplianceCompilationError

Region = Any
"""An index into a [rows, columns] array: slices, integers, index arrays, or a boolean mask."""

MICRO_THREADS = 8
"""Threads of a PE; SDK documentation, timing model."""


@dataclass(frozen=True)
class Role:
    """The instructions of one thread of the PEs in ``pes``."""

    pes: Array
    instructions: tuple[Instruction, ...]


class Program:
    """Built step by step for one fabric, then given to ``run``."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.layout = Layout(fabric.spec)
        self._grid = np.arange(fabric.num_pes).reshape(fabric.rows, fabric.columns)
        self._routes: dict[int, dict[int, Array]] = {}
        self._last: dict[int, Array] = {}
        self._ring: dict[int, Array] = {}
        self._scripts: dict[tuple[int, tuple[Instruction, ...]], int] = {}
        self._role_of = np.zeros((MICRO_THREADS, fabric.num_pes), dtype=np.int32)

    def array(
        self, name: str, length: int, dtype: Dtype = Dtype.FP32, bank: int | None = None
    ) -> SramArray:
        """An array in every PE; errors as ``Layout.allocate``."""
        return self.layout.allocate(name, length, dtype, bank)

    def pes(self, region: Region) -> Array:
        """Numbers (row-major) of the PEs in a region; ApplianceCompilationError outside."""
        try:
            return np.atleast_1d(self._grid[region]).ravel()
        except IndexError as error:
            raise ApplianceCompilationError(
                "a region lies outside the fabric",
                value=region,
                rule=f"{self.fabric.rows} rows x {self.fabric.columns} columns",
            ) from error

    def route(
        self, colour: int, region: Region, source: Port, *outputs: Port, position: int = 0
    ) -> None:
        """Send what enters from ``source`` on to ``outputs`` while the switch is at ``position``.

        Raises ApplianceCompilationError for a colour or a switch position that does not exist.
        """
        spec = self.fabric.spec
        _check_number("colour", colour, spec.colours)
        _check_number("switch position", position, spec.switch_positions)
        pes = self.pes(region)
        if colour not in self._routes:
            self._routes[colour] = {}
            self._last[colour] = np.zeros(self.fabric.num_pes, dtype=np.int8)
            self._ring[colour] = np.zeros(self.fabric.num_pes, dtype=np.bool_)
        tables = self._routes[colour]
        if position not in tables:
            tables[position] = _nothing(self.fabric)
        tables[position][source, pes] |= sum(1 << port for port in set(outputs))
        self._last[colour][pes] = np.maximum(self._last[colour][pes], position)

    def ring_mode(self, colour: int, region: Region) -> None:
        """After the last switch position the first one follows again."""
        self._ring[colour][self.pes(region)] = True

    def do(self, region: Region, *instructions: Instruction, thread: int = 0) -> None:
        """Let a thread of the PEs in ``region`` go on with ``instructions`` after what it does.

        Raises ApplianceCompilationError when a stream is no whole number of words or an
        instruction uses a colour without routes.
        """
        _check_number("thread", thread, MICRO_THREADS)
        for instruction in instructions:
            self._check(instruction)
        pes = self.pes(region)
        role_of = self._role_of[thread]
        for before in np.unique(role_of[pes]):
            after = (int(before), instructions)
            number = self._scripts.setdefault(after, len(self._scripts) + 1)
            same = pes[role_of[pes] == before]
            role_of[same] = number

    @property
    def roles(self) -> list[Role]:
        """All scripts that some PEs follow, thread by thread."""
        parts = {number: part for part, number in self._scripts.items()}
        return [
            Role(np.nonzero(role_of == number)[0], _script(parts, int(number)))
            for role_of in self._role_of
            for number in np.unique(role_of[role_of > 0])
        ]

    @property
    def colours(self) -> list[int]:
        """Colours with routes, in the order in which they are numbered everywhere else."""
        return list(self._routes)

    @property
    def routes(self) -> dict[int, ColourRoutes]:
        """The routes of all colours."""
        return {
            colour: ColourRoutes(
                np.stack([tables.get(p, _nothing(self.fabric)) for p in range(max(tables) + 1)]),
                self._last[colour],
                self._ring[colour],
            )
            for colour, tables in self._routes.items()
        }

    def _check(self, instruction: Instruction) -> None:
        used = [
            colour
            for name in ("receive", "send")
            if (colour := getattr(instruction, name, None)) is not None
        ]
        unknown = [colour for colour in used if colour not in self._routes]
        if unknown:
            raise ApplianceCompilationError(
                "an instruction uses a colour without routes",
                where=type(instruction).__name__,
                value=unknown[0],
                rule="route a colour before a role uses it",
            )
        if isinstance(instruction, Stream):
            _check_stream(instruction)
        if isinstance(instruction, Axpy):
            _check_axpy(instruction)


def _script(
    parts: dict[int, tuple[int, tuple[Instruction, ...]]], number: int
) -> tuple[Instruction, ...]:
    """Follow a script back to its beginning, which is number 0."""
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
            f"there is no such {what}", value=number, rule=f"0 to {limit - 1}"
        )


def _check_stream(stream: Stream) -> None:
    slices = [x for x in (stream.operand, stream.store) if x is not None]
    kinds = {(x.dtype, x.count) for x in slices}
    if len(kinds) != 1 or stream.repeats < 1:
        raise ApplianceCompilationError(
            "a stream has no length",
            value=[f"{count} x {dtype.name}" for dtype, count in kinds],
            rule="an operand or a place to store, of one length and format if both; repeats >= 1",
        )
    if stream.operand is None and stream.receive is None:
        raise ApplianceCompilationError(
            "a stream has no source", rule="an operand in memory, or a colour to receive"
        )
    for x in slices:
        packed = x.dtype.per_word
        if x.count % packed or (packed > 1 and (x.stride > 1 or x.address % 4)):
            raise ApplianceCompilationError(
                "a stream is no whole number of words",
                where=f"array {x.array.name!r}",
                value=f"{x.count} x {x.dtype.name} from element {x.start}, stride {x.stride}",
                rule="16-bit elements travel in pairs: even start and count, stride 1",
                remedy="pad the array by one element",
            )


def _check_axpy(axpy: Axpy) -> None:
    too_wide = axpy.indexed and axpy.factors.dtype is Dtype.FP32
    if axpy.factors.count % axpy.sums.count or too_wide:
        raise ApplianceCompilationError(
            "an axpy cannot run",
            value=f"{axpy.factors.count} factors of {axpy.factors.dtype.name}, "
            f"{axpy.sums.count} sums, indexed: {axpy.indexed}",
            rule="factors are whole rows of sums; a weight with an index has 16 bits",
        )
