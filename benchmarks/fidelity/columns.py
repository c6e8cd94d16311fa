"""The columns of the three kinds of reference files, and the units that they may hold."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["kernels", "training", "gpu"]


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
    "gpu": _words(
        "row_id cluster gpu n_gpus gpus_per_node interconnect phase workload model_params hidden"
        " layers heads seq_len global_batch microbatch grad_accum parallelism act_ckpt dtype value"
        " unit tokens_per_s_per_gpu mfu_pct hfu_pct source locator how_read confidence notes"
        " use"
    ),
}

RESULTS = frozenset(
    _words(
        "value step_time_s derived_6ND_PFLOPs_per_csx tokens_per_s_per_gpu mfu_pct hfu_pct notes"
    )
)
"""Columns that hold, or in free text may hold, what was measured."""

QUANTITIES = frozenset(
    _words(
        "ps ns us ms s seconds minutes hours days GPU-hours"
        " cycle cycles clocks elements words wavelets hops bytes B KB MB GB TB PB"
        " samples sequences tokens steps iterations batches epochs images"
        " FLOP FLOPs MFLOP GFLOP TFLOP PFLOP EFLOP flop flops mW W kW MW J kJ MJ"
    )
)
"""What a unit may measure, as its first word or words joined by ``/``; or a ratio, x or %."""

PER = QUANTITIES | frozenset(
    _words(
        "hop turn wavelet element word iteration step MAC FMAC FMA op task row column layer block"
        " direction PE core link port wafer CSX system box node GPU gpu request user token sample"
        " batch matvec call message min minute hour day second"
    )
)
"""What may stand after a ``/``."""

_ADJECTIVES = r"(?:(?:output|input|prompt|generated|time|total)\s+)?"
_SHAPE = re.compile(rf"{_ADJECTIVES}(?P<measure>\S+?),?(?:\s.*)?")
_REMARK = re.compile(r"\s*\(.*\)")


def without_remark(unit: str) -> str:
    """The unit itself: remarks in brackets, which often quote results, are cut off."""
    return _REMARK.sub("", unit).strip()


def unknown_word(unit: str) -> str | None:
    """The word of a unit that is not known, or None; words after a blank only describe."""
    shape = _SHAPE.fullmatch(unit)
    if shape is None:
        return unit
    quantity, *per = shape["measure"].split("/")
    if quantity not in QUANTITIES and shape["measure"] not in ("x", "%"):
        return quantity
    return next((word for word in per if word not in PER), None)
