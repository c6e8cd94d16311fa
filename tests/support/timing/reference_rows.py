"""Published rows, small files of made-up rows, and families that predict them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from validation.families import kernels
from validation.families.prediction import Family, family_of
from validation.report.summary import belongs
from validation.rows.reader import PUBLISHED, read_rows
from validation.rows.row import COLUMNS, CannotPredict, Evidence, Kind, Row
from validation.rows.units import canonical

_COMMON = {"workload": "1D reduce", "value": "100", "unit": "cycles", "use": "validation"}


def row(row_id: str = "K0001", kind: str = "kernels", **fields: str) -> dict[str, str]:
    """Return all columns of a kind by name; those not given are plausible or empty."""
    evidence = {} if kind in ("gpu", "service") else {"evidence": "simulator"}
    known = {"row_id": row_id, **_COMMON, **evidence, **fields}
    columns = COLUMNS[cast(Kind, kind)]
    assert set(known) <= set(columns)
    return {column: known.get(column, "") for column in columns}


def write_rows(path: Path, *rows: Mapping[str, str]) -> Path:
    """Write a CSV file of rows of one kind; return its path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


@cache
def published() -> dict[str, Row]:
    """Return the rows of validation/data by id."""
    return {row.row_id: row for path in PUBLISHED for row in read_rows(path)}


def published_rows(name: str, families: Sequence[Family], use: str) -> list[Row]:
    """Return the published rows with a mark that belong to the families of a name."""
    return [
        row
        for row in published().values()
        if row.use == use
        and (family := family_of(row.described(), families)) is not None
        and belongs(family.name, name)
    ]


def constant(name: str, workload: str, predicted: float) -> Family:
    """Return a family that predicts one number for all rows of a workload."""
    return Family(name, lambda row: row.text("workload") == workload, lambda _: predicted)


def refusing(name: str, workload: str, reason: str) -> Family:
    """Return a family that cannot predict its rows."""

    def refuse(_: Row) -> float:
        raise CannotPredict(reason, code="refused")

    return Family(name, lambda row: row.text("workload") == workload, refuse)


def variant(row_id: str, **changes: str) -> Row:
    """Return a published row with some columns changed."""
    known = published()[row_id]
    fields = {**known.fields, **changes}
    assert set(fields) == set(known.fields)
    return replace(known, fields=fields, unit=canonical(fields["unit"])).described()


def predict(row: Row, families: Sequence[Family]) -> float:
    """Return the prediction of a described row by the first family that knows it."""
    family = family_of(row, families)
    assert family is not None
    return family.predict(row)


def tiny_training_row(**changes: str) -> Row:
    """Return a row of a tiny GPT on one CS-2, with some columns changed."""
    fields = row(
        "T0001", "training", workload="GPT-2 tiny", hidden="64", layers="2", heads="2",
        vocab="128", system="CS-2", phase="train", unit="samples/s", seq_len="32",
        global_batch="64", num_csx="1", use="calibration",
    )  # fmt: skip
    fields |= changes
    value = float(fields["value"])
    unit = canonical(fields["unit"])
    return Row("training", "rows.csv", 2, "T0001", "calibration", value, unit, "silicon", fields)


def tiny_training_rows(*changes: dict[str, str]) -> list[Row]:
    """Return one row of a tiny GPT for each set of changed columns."""
    return [tiny_training_row(**one) for one in changes]


def kernel_row(workload: str, unit: str = "cycles", **columns: Any) -> Row:
    """Return a kernel row of a simulated WSE-2 in fp32, with some columns set."""
    fields = row(
        workload=workload, unit=unit, system="WSE-2 (Cerebras SDK simulator)", dtype="fp32"
    )
    fields |= {name: str(text) for name, text in columns.items()}
    evidence = cast(Evidence, fields["evidence"])
    return Row("kernels", "rows.csv", 2, "K1", "calibration", 1.0, unit, evidence, fields)


def predict_kernel(row: Row) -> float:
    """Return the prediction of a kernel row by the first family that knows it."""
    return predict(row, kernels.FAMILIES)
