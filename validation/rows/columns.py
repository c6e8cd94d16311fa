"""The columns of the three kinds of reference files."""

from __future__ import annotations

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
