"""Dead PEs and links of a wafer: drawn at random from a seed, or read from a file.

A file lists coordinates, one defect per line, counted from the north-west corner::

    kind,row,column,direction
    pe,12,40,
    link,3,7,east
    link,3,8,south

A dead PE has a dead router, so all its links are dead too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csnode.fabric.dtypes import Array
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.fabric import FabricSpec

Coordinate = tuple[int, int]
Link = tuple[Coordinate, Coordinate]

_COLUMNS = ["kind", "row", "column", "direction"]
_DIRECTIONS = {"east": (0, 1), "south": (1, 0)}


@dataclass(frozen=True)
class Defects:
    """Dead PEs as (row, column); dead links as (PE, its eastern or southern neighbour)."""

    pes: frozenset[Coordinate] = frozenset()
    links: frozenset[Link] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.pes or self.links)

    def alive(self, spec: FabricSpec) -> Array:
        """Return which PEs of the whole wafer work, bool [rows, columns].

        Raises ConfigError for a defect outside the wafer.
        """
        for pe in self.pes | {pe for link in self.links for pe in link}:
            _check_inside(spec, pe, "defects")
        alive = np.ones((spec.rows, spec.columns), dtype=np.bool_)
        for row, column in self.pes:
            alive[row, column] = False
        return alive


def random_defects(
    spec: FabricSpec, seed: int, pe_yield: float = 0.999, link_yield: float = 1.0
) -> Defects:
    """Draw defects: each PE works with probability ``pe_yield``, each link with ``link_yield``.

    The same seed gives the same wafer. Raises ConfigError for a yield outside 0 to 1.
    """
    for name, value in (("pe_yield", pe_yield), ("link_yield", link_yield)):
        if not 0 <= value <= 1:
            raise ConfigError(
                f"{name} must be a probability; got {value}",
                code="yield-out-of-range",
                value=value,
                rule="0 to 1",
            )
    random = np.random.default_rng(seed)
    dead = random.random((spec.rows, spec.columns)) >= pe_yield
    links: set[Link] = set()
    for row_step, column_step in _DIRECTIONS.values():
        broken = random.random((spec.rows - row_step, spec.columns - column_step)) >= link_yield
        links |= {
            ((row, column), (row + row_step, column + column_step))
            for row, column in np.argwhere(broken).tolist()
        }
    return Defects(
        frozenset((row, column) for row, column in np.argwhere(dead).tolist()), frozenset(links)
    )


def read_defects(path: Path, spec: FabricSpec) -> Defects:
    """Read the defects of a wafer as large as ``spec`` from a file.

    Raises:
        ConfigError: The file cannot be read, has other columns, has a line that is not a defect of
            this wafer, or leaves a row or column without a working PE. Names file, line and rule.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the defect map must be a readable UTF-8 file",
            code="defect-map-unreadable",
            where=str(path),
            value=error,
        ) from error
    rows = [line.split(",") for line in lines]
    if not rows or rows[0] != _COLUMNS:
        raise ConfigError(
            "the first line of a defect map must name its columns",
            code="defect-map-header",
            where=f"{path}, line 1",
            value=rows[0] if rows else "nothing",
            rule=f"the first line is {','.join(_COLUMNS)}",
        )
    pes: set[Coordinate] = set()
    links: set[Link] = set()
    for number, fields in enumerate(rows[1:], start=2):
        if fields != [""]:
            where = f"{path}, line {number}"
            kind, (row, column), direction = _fields(fields, where)
            row_step, column_step = _DIRECTIONS.get(direction, (0, 0))
            far = (row + row_step, column + column_step)
            _check_inside(spec, far, where)
            if kind == "pe":
                pes.add(far)
            else:
                links.add(((row, column), far))
    _check_crossed(spec, pes, path)
    return Defects(frozenset(pes), frozenset(links))


def _check_crossed(spec: FabricSpec, dead: set[Coordinate], path: Path) -> None:
    for axis, (name, length) in enumerate((("row", spec.columns), ("column", spec.rows))):
        for line, num_dead in sorted(Counter(pe[axis] for pe in dead).items()):
            if num_dead == length:
                raise ConfigError(
                    f"every {name} of the wafer must have a working PE; got {name} {line} all dead",
                    code="defect-map-splits-wafer",
                    where=str(path),
                    value=f"{name} {line}, {num_dead} PEs",
                    rule=f"at least one working PE per {name}: no wire crosses a dead {name}",
                    remedy="describe only the larger part, with system.fabric in cluster.yaml",
                )


def _check_inside(spec: FabricSpec, pe: Coordinate, where: str) -> None:
    if not (0 <= pe[0] < spec.rows and 0 <= pe[1] < spec.columns):
        raise ConfigError(
            "a defect must lie on the wafer",
            code="defect-outside-wafer",
            where=where,
            value=f"row {pe[0]}, column {pe[1]}",
            rule=f"rows 0 to {spec.rows - 1}, columns 0 to {spec.columns - 1}",
        )


def _fields(fields: list[str], where: str) -> tuple[str, Coordinate, str]:
    kind, *numbers, direction = fields if len(fields) == len(_COLUMNS) else ["", "", "", ""]
    known_direction = direction in _DIRECTIONS if kind == "link" else direction == ""
    if kind not in ("pe", "link") or not known_direction or not all(map(str.isdecimal, numbers)):
        raise ConfigError(
            "a line of a defect map must be a PE or a link",
            code="defect-map-line",
            where=where,
            value=",".join(fields),
            rule="pe,ROW,COLUMN, or link,ROW,COLUMN,east|south with numbers from 0",
        )
    row, column = map(int, numbers)
    return kind, (row, column), direction
