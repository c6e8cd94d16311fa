"""Hold one published measurement and convert its columns.

A row has three kinds of content: what was run, what came out (``RESULTS``) and where it is
published. A prediction gets ``Row.described()``, from which the results are removed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from waferstream.core.errors import ConfigError

Kind = Literal["kernels", "training", "service", "gpu"]
Use = Literal["calibration", "validation", "context"]
Evidence = Literal["silicon", "simulator", "compiler-estimate", "count"]

Known = TypeVar("Known")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


COLUMNS: dict[Kind, tuple[str, ...]] = {
    "kernels": _words(
        "row_id system workload algorithm grid_x grid_y num_pes vector_len M K N params dtype"
        " density_pct clock_ghz value unit evidence source locator how_read confidence notes"
        " use"
    ),
    "training": _words(
        "row_id system phase workload model_params_b hidden layers heads ffn vocab seq_len"
        " global_batch micro_batch_per_csx dtype sparsity_pct num_csx software grid value unit"
        " step_time_s derived_6ND_PFLOPs_per_csx evidence source locator how_read confidence"
        " notes use"
    ),
    "service": _words(
        "row_id workload params_b active_params_b measured_on quantity value unit wafers"
        " price_in_usd_per_mtok price_out_usd_per_mtok source locator confidence use"
    ),
    "gpu": _words(
        "row_id cluster gpu n_gpus gpus_per_node interconnect phase workload model_params hidden"
        " layers heads seq_len global_batch microbatch grad_accum parallelism act_ckpt dtype value"
        " unit tokens_per_s_per_gpu mfu_pct hfu_pct source locator how_read confidence notes"
        " use"
    ),
}
"""Columns of the four kinds of files; validation/data/README.md explains them."""

RESULTS = frozenset(
    _words(
        "value step_time_s derived_6ND_PFLOPs_per_csx tokens_per_s_per_gpu mfu_pct hfu_pct notes"
    )
)
"""Columns that hold, or in free text may hold, measured results."""

_LABELS: dict[Kind, tuple[tuple[str, str], ...]] = {
    "kernels": (
        ("system", "{}:"),
        ("workload", "{}"),
        ("algorithm", "{}"),
        ("num_pes", "P={}"),
        ("vector_len", "B={}"),
        ("M", "M={}"),
        ("K", "K={}"),
        ("N", "N={}"),
        ("density_pct", "{} % dense"),
        ("dtype", "{}"),
    ),
    "training": (
        ("system", "{}:"),
        ("workload", "{}"),
        ("grid", "grid {}"),
        ("seq_len", "S={}"),
        ("global_batch", "B={}"),
        ("num_csx", "n={}"),
        ("software", "{}"),
    ),
    "service": (
        ("workload", "{}:"),
        ("quantity", "{}"),
        ("wafers", "{} wafers"),
        ("measured_on", "{}"),
    ),
    "gpu": (
        ("gpu", "{}"),
        ("n_gpus", "x {}:"),
        ("workload", "{}"),
        ("parallelism", "{}"),
        ("seq_len", "S={}"),
        ("global_batch", "B={}"),
        ("microbatch", "micro-batch {}"),
    ),
}
_NUMBERS_IN_BRACKETS = re.compile(r"\s*\([\d.,\s\u2013-]+\)")


class CannotPredict(Exception):
    """Reason why a row cannot be predicted, for the report; ``code`` names the rule."""

    def __init__(self, reason: str, *, code: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


@dataclass(frozen=True)
class Row:
    """One published measurement: one line of a file."""

    kind: Kind
    file: str
    line: int
    row_id: str
    use: Use
    value: float | str
    """Number; text when the source gives a formula or a range."""
    unit: str
    """Canonical form (``units.canonical``), without remarks in brackets."""
    evidence: Evidence
    fields: Mapping[str, str]
    """All columns of the kind, as written."""

    @property
    def place(self) -> str:
        """File, line and row, for an error."""
        return f"{self.file}, line {self.line}, row {self.row_id}"

    @property
    def label(self) -> str:
        """Workload, machine and sizes in one line, without empty columns."""
        parts = _LABELS[self.kind]
        return " ".join(part.format(self.text(name)) for name, part in parts if self.text(name))

    def text(self, column: str) -> str:
        """Return the text of a column, "" when empty; KeyError if the kind lacks the column."""
        return self.fields[column].strip()

    def number(self, column: str) -> float | None:
        """Return a column as a number, None when empty; ConfigError if it holds no number."""
        text = self.text(column)
        if not text:
            return None
        number = finite(text)
        if number is None:
            raise self._wrong(column, "a finite number or nothing", "column-not-a-number")
        return number

    def integer(self, column: str) -> int | None:
        """Return a column as a count from 1, None when empty; ConfigError if it holds no count."""
        number = self.number(column)
        if number is None:
            return None
        if not number.is_integer() or number < 1:
            raise self._wrong(column, "a whole number from 1, or nothing", "column-not-a-count")
        return int(number)

    def stated(self, column: str) -> str:
        """Return the text of a column; CannotPredict if it is empty."""
        if text := self.text(column):
            return text
        raise self._empty(column)

    def count(self, column: str) -> int:
        """Return a column as a count from 1; CannotPredict if it is empty."""
        number = self.integer(column)
        if number is None:
            raise self._empty(column)
        return number

    def choice(self, column: str, known: Mapping[str, Known]) -> Known:
        """Return the meaning of a column; CannotPredict if ``known`` lacks its text."""
        text = self.text(column)
        if text not in known:
            raise CannotPredict(f"no model of {column} {text!r}", code="column-value-unknown")
        return known[text]

    def described(self) -> Row:
        """Return the row as a prediction may see it: the configuration without any result."""
        fields = {column: "" if column in RESULTS else text for column, text in self.fields.items()}
        fields["unit"] = self.unit
        fields["workload"] = _NUMBERS_IN_BRACKETS.sub("", self.fields["workload"])
        return replace(self, value="", fields=fields)

    def _empty(self, column: str) -> CannotPredict:
        return CannotPredict(f"the row gives no {column}", code="column-empty")

    def _wrong(self, column: str, rule: str, code: str) -> ConfigError:
        return ConfigError(
            f"{column!r} must be {rule}; got {self.fields[column]!r}",
            code=code,
            where=f"{self.place}, field {column}",
            value=repr(self.fields[column]),
            rule=rule,
        )


def letters_of(name: str) -> str:
    """Return a name in lower case without punctuation: ``Llama 3.1-8B`` becomes llama318b."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def finite(text: str) -> float | None:
    """Return the finite number that a text holds, or None ("nan" and "inf" are no numbers)."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
