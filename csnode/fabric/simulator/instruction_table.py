"""Instructions of all scripts as one table of numbers, which PEs look up as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from csnode.fabric.dtypes import Array, Combine, Dtype
from csnode.fabric.instructions import (
    Axpy,
    Control,
    Delay,
    Dots,
    Gather,
    Gemv,
    Instruction,
    Signal,
    Stream,
    Vector,
    Wait,
)
from csnode.fabric.memory import Slice
from csnode.fabric.program import Program
from csnode.fabric.simulator.network import ADVANCE_HERE, CONTROL, TO_CORE

MOVE = -1
"""Kind of a stream that combines nothing; other kinds index ``Table.kinds``."""
_FIELDS = (
    *("op", "words", "period", "operand", "operand_stride", "store", "store_stride"),
    *("store_run", "store_pitch"),
    *("receive", "send", "kind", "last_flags", "count", "continues"),
)


class Op(IntEnum):
    """Kind of work of an instruction in the core."""

    STREAM = 0
    TRIGGERED = 1
    VECTOR = 2
    SIGNAL = 3
    WAIT = 4
    DELAY = 5
    END = 6


@dataclass(frozen=True)
class Table:
    """One row per instruction, script after script, each ended by END; int32 [rows] unless stated.

    ==================  ============================================================
    ``instructions``    the instruction of each row, None for END
    ``starts``          first row of each script
    ``kinds``           (operation, dtype) of each kind of combination
    ``op``              ``Op``
    ``words``           words of a stream, in periods of ``period`` words
    ``operand``         word address of the operand, -1 for none; and its stride
    ``store``           word address of the store, -1 for none; and its stride
    ``store_run``       words of a run of a store, 0 if it is not columns of a matrix
    ``store_pitch``     words from run to run
    ``receive, send``   colours in the simulator's numbering, -1 for none
    ``kind``            kind of combination, or MOVE
    ``last_flags``      flags of the last wavelet
    ``count``           event of a signal or wait, cycles of a delay
    ``continues``       1 for a stream without set-up
    ==================  ============================================================
    """

    instructions: tuple[Instruction | None, ...]
    starts: tuple[int, ...]
    kinds: tuple[tuple[Combine, Dtype], ...]
    op: Array
    words: Array
    period: Array
    operand: Array
    operand_stride: Array
    store: Array
    store_stride: Array
    store_run: Array
    store_pitch: Array
    receive: Array
    send: Array
    kind: Array
    last_flags: Array
    count: Array
    continues: Array


def compile_table(program: Program) -> Table:
    """Flatten the scripts of a program into a table."""
    colours = {colour: index for index, colour in enumerate(program.colours)}
    kinds: dict[tuple[Combine, Dtype], int] = {}
    instructions: list[Instruction | None] = []
    starts = []
    for script in program.scripts:
        starts.append(len(instructions))
        instructions += [*script.instructions, None]
    rows = [_row(instruction, colours, kinds) for instruction in instructions]
    columns = np.array(rows, dtype=np.int32).reshape(-1, len(_FIELDS)).T.copy()
    return Table(
        tuple(instructions), tuple(starts), tuple(kinds), **dict(zip(_FIELDS, columns, strict=True))
    )


def _row(
    instruction: Instruction | None,
    colours: dict[int, int],
    kinds: dict[tuple[Combine, Dtype], int],
) -> Sequence[int]:
    values = dict.fromkeys(_FIELDS, 0) | {
        "op": Op.END, "operand": -1, "store": -1, "receive": -1, "send": -1, "kind": MOVE
    }  # fmt: skip
    match instruction:
        case Stream():
            values |= _stream(instruction, colours, kinds)
        case Control(send=send, to_cores=to_cores):
            flags = CONTROL | (TO_CORE if to_cores else 0)
            values |= {"op": Op.STREAM, "words": 1, "period": 1, "send": colours[send]}
            values |= {"last_flags": flags}
        case Axpy(receive=receive) | Dots(receive=receive):
            values |= {"op": Op.TRIGGERED, "receive": colours[receive]}
        case Signal(event=event):
            values |= {"op": Op.SIGNAL, "count": event}
        case Wait(event=event):
            values |= {"op": Op.WAIT, "count": event}
        case Delay(cycles=cycles):
            values |= {"op": Op.DELAY, "count": cycles}
        case Vector() | Gemv() | Gather():
            values["op"] = Op.VECTOR
        case None:
            pass
    return [values[name] for name in _FIELDS]


def _stream(
    stream: Stream, colours: dict[int, int], kinds: dict[tuple[Combine, Dtype], int]
) -> dict[str, int]:
    shape = stream.operand or stream.store
    assert shape is not None, "checked when the script got it"
    period = shape.count // shape.dtype.per_word
    values = {"op": Op.STREAM, "words": period * stream.repeats, "period": period}
    for name, side in (("operand", stream.operand), ("store", stream.store)):
        if side is not None:
            values |= {name: side.address // 4, f"{name}_stride": _word_stride(side)}
    if stream.store is not None and stream.store.pitch:
        packed = stream.store.dtype.per_word
        values["store_run"] = stream.store.run // packed
        values["store_pitch"] = stream.store.pitch // packed
    for name, colour in (("receive", stream.receive), ("send", stream.send)):
        if colour is not None:
            values[name] = colours[colour]
    if stream.operand is not None and stream.receive is not None:
        values["kind"] = kinds.setdefault((stream.combine, shape.dtype), len(kinds))
    values["continues"] = int(stream.continues)
    values["last_flags"] = (ADVANCE_HERE if stream.advance else 0) | (
        CONTROL | TO_CORE if stream.ends_row else 0
    )
    return values


def _word_stride(side: Slice) -> int:
    return side.stride if side.dtype is Dtype.FP32 else 1
