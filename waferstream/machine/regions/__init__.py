"""Inference on wafer regions: layers stay in SRAM, activations move.

A decoder's layers are mapped to regions of side x side PEs. The prompt goes through a region as
matrix products, each new token as a chain of matrix-vector products and all-reduces (``phases``);
``service`` spreads a decoder over several wafers.

The programs are those of WaferLLM (He et al., OSDI'25, arXiv 2502.04563, and its published
programs): MeshGEMM, MeshGEMV with a tree of depth two, all heads run as one, every extent padded to
a multiple of the region's side. Clocks and grids are parameters; all formulas are in cycles.
"""

from waferstream.machine.regions.phases import (
    decode_cycles_per_layer,
    decode_s,
    decode_s_per_token,
    end_to_end_s,
    prefill_cycles_per_layer,
    prefill_s,
    relayout_s,
)
from waferstream.machine.regions.region import PE_COSTS, Decoder, PeCosts, Region
from waferstream.machine.regions.service import (
    ServiceSpec,
    held_bytes,
    service_s_per_token,
    wafer_plan,
)

__all__ = [
    "PE_COSTS",
    "Decoder",
    "PeCosts",
    "Region",
    "ServiceSpec",
    "decode_cycles_per_layer",
    "decode_s",
    "decode_s_per_token",
    "end_to_end_s",
    "held_bytes",
    "prefill_cycles_per_layer",
    "prefill_s",
    "relayout_s",
    "service_s_per_token",
    "wafer_plan",
]
