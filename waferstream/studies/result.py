"""The result of a study: a row for each point of its grid, with numbers or the reason for none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from waferstream.core.errors import ConfigError
from waferstream.core.outputs import check_folder
from waferstream.core.units import counted, format_count
from waferstream.host.files import write_json
from waferstream.reports.curve.records import row_record
from waferstream.reports.curve.result import CurvePoint, RefusedPoint
from waferstream.reports.records import SUFFIXES, Record, to_dataframe, write_records
from waferstream.studies.grid import Scalar

if TYPE_CHECKING:
    import pandas as pd

    from waferstream.reports.style import Width

PICTURES = (".pdf", ".png", ".svg")
"""Suffixes of pictures."""


@dataclass(frozen=True)
class StudyRow:
    """One point of a grid."""

    values: Mapping[str, Scalar]
    """The values of the keys of the grid, by their names."""
    machine: str
    """Kind of systems, with the name of the cluster where it has one."""
    scaling: str
    """``strong`` or ``weak``."""
    num_csx: int
    batch_size: int
    """Samples of a step over all systems; of each system where the point is refused."""
    point: CurvePoint | RefusedPoint
    ideal_samples_per_s: float | None = None
    """The rate of the first point of its curve, scaled by systems."""

    @property
    def record(self) -> Record:
        """All of the row by the names of columns."""
        own: dict[str, Scalar] = {
            "machine": self.machine,
            "scaling": self.scaling,
            "num_csx": self.num_csx,
            "ideal_samples_per_s": self.ideal_samples_per_s,
        }
        return {**self.values, **own, **row_record(self.point, self.batch_size)}


@dataclass(frozen=True)
class StudyTimes:
    """Seconds of the host, from the start of the study to its last row."""

    captured: int
    """Steps that were captured."""
    capture_s: float
    total_s: float

    def text(self, num_points: int) -> str:
        """Return what the study took in one sentence."""
        return (
            f"{counted(num_points, 'point')} in {self.total_s:.1f} s, {self.capture_s:.1f} s of it "
            f"to capture {counted(self.captured, 'step')}."
        )


@dataclass(frozen=True)
class StudyResult:
    """The rows of a study in the order of its grid, whose last key varies fastest."""

    model: str
    parameters: int | None
    """Of the first model that could be captured; None if none could."""
    varying: tuple[str, ...]
    """Names of the keys with several values."""
    rows: tuple[StudyRow, ...]
    times: StudyTimes
    version: str
    commit: str | None
    configuration: Mapping[str, object]

    @property
    def is_possible(self) -> bool:
        """Whether a point of the grid can be."""
        return any(isinstance(row.point, CurvePoint) for row in self.rows)

    @property
    def records(self) -> list[Record]:
        """A record for each row."""
        return [row.record for row in self.rows]

    @property
    def unit(self) -> str:
        """Of rates: ``tokens/s``, or ``samples/s`` for a model that reads no tokens."""
        points = (row.point for row in self.rows if isinstance(row.point, CurvePoint))
        return "tokens/s" if all(map(_reads_tokens, points)) else "samples/s"

    @property
    def title(self) -> str:
        """Model and keys in one line."""
        size = "" if self.parameters is None else f", {format_count(self.parameters)} parameters"
        return f"{self.model}{size}: {' x '.join(self.varying) or 'one point'}"

    def to_dataframe(self) -> pd.DataFrame:
        """Return the rows as a table of pandas; ConfigError if it is not installed."""
        return to_dataframe(self.records)

    def write(self, path: Path | str, width: Width = "page") -> None:
        """Write the rows or their picture; the suffix says which.

        Args:
            path: Ends in .csv, .parquet or .json, or in .pdf, .png or .svg for a picture.
            width: That of a picture: ``column`` or ``page`` of a paper, or ``screen``.

        Raises:
            ConfigError: The suffix is none of these, or the format needs a package.
        """
        target = check_output(Path(path))
        if target.suffix in PICTURES:
            from waferstream.studies.picture import study_picture  # noqa: PLC0415  (matplotlib)

            study_picture(target, self, width)
        elif target.suffix == ".json":
            write_json(target, {"study": self.origin, "rows": self.records})
        else:
            write_records(target, self.records)

    @property
    def origin(self) -> dict[str, object]:
        """What the rows depend on, and what they took."""
        return {
            "model": self.model,
            "parameters": self.parameters,
            "varying": self.varying,
            "times": self.times,
            "version": self.version,
            "commit": self.commit,
            "configuration": self.configuration,
        }


def _reads_tokens(point: CurvePoint) -> bool:
    return point.prediction is not None and point.prediction.tokens_per_s is not None


def rate_of(point: CurvePoint) -> float:
    """Return the tokens per second of a point; its samples if the model reads no tokens."""
    if point.prediction is None or point.prediction.tokens_per_s is None:
        return point.emulated.samples_per_s
    return point.prediction.tokens_per_s


def check_output(path: Path, *, pictures: bool = True) -> Path:
    """Return a path whose suffix names a format, of rows or picture; ConfigError for another,
    or where the folder of the file is missing.
    """
    known = (*SUFFIXES, *PICTURES) if pictures else SUFFIXES
    if path.suffix in known:
        return check_folder(path, "--out")
    raise ConfigError(
        "the suffix of a file must name a format",
        code="unknown-format",
        where="--out",
        value=path,
        rule=f"one of {', '.join(known)}",
    )


def series_of(rows: Sequence[StudyRow], but: str) -> dict[tuple[Scalar, ...], list[StudyRow]]:
    """Return the rows by the values of all keys but one: the curves over that key."""
    found: dict[tuple[Scalar, ...], list[StudyRow]] = {}
    for row in rows:
        key = tuple(value for name, value in row.values.items() if name != but)
        found.setdefault(key, []).append(row)
    return found
