"""Name what a row measures: the model that runs or, for a kernel, its program and sizes.

Rows of one subject err alike. They are left out of a fit together, and a constant that rests on one
subject proves nothing about another.
"""

from __future__ import annotations

import re

from validation.rows.row import Row, letters_of

_MODEL = re.compile(
    r"\b(?:genslm|gpt|bert|llama|codellama|esm|dit|mistral|bloom|btlm|jais|vit|flor|mpt|pythia|"
    r"qwen|glm|kimi|deepseek|opt|falcon)[-\w. ]*?"
    r"(?:\d+(?:\.\d+)?[MBT]\b|small|medium|large|xl|base|huge|$)",
    re.IGNORECASE,
)
"""Kind and size of a model, in the workload of a row."""

_SIZES = ("algorithm", "grid_x", "grid_y", "num_pes", "vector_len", "M", "K", "N")


def subject(row: Row) -> str:
    """Return the model of a row, or the program of a kernel with its sizes: letters and digits."""
    workload = row.text("workload")
    if row.kind == "kernels":
        return letters_of(" ".join([workload, *(row.text(column) for column in _SIZES)]))
    found = _MODEL.search(workload)
    return letters_of(found[0] if found else workload)
