"""A row in a few words: what was run, on what, how large."""

from __future__ import annotations

from validation.rows.columns import Kind
from validation.rows.row import Row

_PARTS: dict[Kind, tuple[tuple[str, str], ...]] = {
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


def what(row: Row) -> str:
    """One line; cells that are empty are left out."""
    parts = _PARTS[row.kind]
    return " ".join(form.format(row.text(column)) for column, form in parts if row.text(column))
