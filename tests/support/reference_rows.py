"""Small files of reference rows, and families that predict them."""

import csv

from validation.families.replay import CannotReplay, Family
from validation.rows.columns import COLUMNS

_COMMON = {"workload": "1D reduce", "value": "100", "unit": "cycles", "use": "validation"}


def row(row_id="K0001", kind="kernels", **fields):
    """All columns of a kind by name; those not given are plausible or empty."""
    evidence = {} if kind == "gpu" else {"evidence": "simulator"}
    known = {"row_id": row_id, **_COMMON, **evidence, **fields}
    assert set(known) <= set(COLUMNS[kind])
    return {column: known.get(column, "") for column in COLUMNS[kind]}


def write_rows(path, *rows):
    """A CSV file of rows of one kind; returns its path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def constant(name, workload, predicted):
    """A family that predicts one number for all rows of a workload."""
    return Family(name, lambda row: row.text("workload") == workload, lambda row: predicted)


def refusing(name, workload, reason):
    """A family that cannot replay its rows."""

    def refuse(row):
        raise CannotReplay(reason)

    return Family(name, lambda row: row.text("workload") == workload, refuse)
