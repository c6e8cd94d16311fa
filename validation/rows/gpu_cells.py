"""What single cells of gpu_training.csv say, however they are spelt."""

from __future__ import annotations

import re

from baselines.gpu import A100_40, A100_80, H100, H100_500W, H200, GpuSpec, Recompute
from validation.families.replay import CannotReplay
from validation.rows.cells import choice, count
from validation.rows.row import Row
from validation.rows.row_words import letters_of

_GPUS = {
    "a10080gb": A100_80,
    "a10040gb": A100_40,
    "h10096gb": H100_500W,
    "h100": H100,
    "h200": H200,
}
"""By the first letters of their names; a longer name comes before a shorter one."""

_RECOMPUTES: dict[str, Recompute] = {
    "True": "full",
    "full": "full",
    "selective": "selective",
    "False": "none",
    "none": "none",
}

_MULTIPLES = {"M": 1e6, "B": 1e9, "T": 1e12}


def gpu_of(row: Row) -> GpuSpec:
    """The chip; CannotReplay if it has no numbers."""
    letters = letters_of(row.text("gpu"))
    for name, gpu in _GPUS.items():
        if letters.startswith(name):
            return gpu
    raise CannotReplay(f"no numbers for a {row.text('gpu')}")


def parameters_of(row: Row) -> int:
    """Weights of the model: a number, or one such as ``1.4B``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MBT])", row.text("model_params"))
    return round(float(found[1]) * _MULTIPLES[found[2]]) if found else count(row, "model_params")


def recompute_of(row: Row, otherwise: Recompute | None = None) -> Recompute:
    """What the backward pass computes again; CannotReplay where neither row nor software tells."""
    if otherwise is not None and not row.text("act_ckpt"):
        return otherwise
    return choice(row, "act_ckpt", _RECOMPUTES)


def is_float8(row: Row) -> bool:
    """Whether products run in 8 bit; CannotReplay unless a scale is that of a whole tensor."""
    words = f"{row.text('dtype')} {row.text('parallelism')}".lower()
    if any(scales in words for scales in ("rowwise", "blockwise", "mxfp8")):
        raise CannotReplay("no calibration row of float8 with scales per row or block")
    return "float8" in words or "fp8" in words


def degree_of(row: Row, kind: str) -> int:
    """How many GPUs share what a kind of parallelism splits: ``TP8``, ``TP 8``, ``tp=8``."""
    found = re.search(rf"\b{kind}\s*=?\s*(\d+)", row.text("parallelism"), re.IGNORECASE)
    return int(found[1]) if found else 1


def size_of(row: Row, family: str) -> str:
    """The size behind the name of a family of models: ``1.4B``; CannotReplay for another family."""
    name = row.text("workload")
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?[MB])\b", name.replace("-", " "))
    if found is None or letters_of(family) not in letters_of(name):
        raise CannotReplay(f"no configuration of {name}")
    return found[1]
