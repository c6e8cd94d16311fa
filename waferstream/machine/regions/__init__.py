"""Inference on wafer regions: layers stay in SRAM, activations move.

A decoder's layers are mapped to regions of side x side PEs. The prompt goes through a region as
matrix products, each new token as a chain of matrix-vector products and all-reduces (``phases``);
``layout`` places a decoder on wafers, ``pipeline`` has the time of tokens that pass them, and
``service`` is what a vendor serves.

The programs are those of WaferLLM (He et al., OSDI'25, arXiv 2502.04563, and its published
programs): MeshGEMM, MeshGEMV with a tree of depth two, all heads run as one, every extent padded to
a multiple of the region's side. Clocks and grids are parameters; all formulas are in cycles.
"""

from waferstream.machine.regions.batch_time import BatchTime
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.layout import Layout, Place, Stage
from waferstream.machine.regions.phases import (
    decode_cycles_per_layer,
    decode_s,
    decode_s_per_token,
    end_to_end_s,
    prefill_cycles_per_layer,
    prefill_s,
    relayout_s,
)
from waferstream.machine.regions.pipeline import Pipeline
from waferstream.machine.regions.published import DECODERS, DRAFTS, Draft, name_unknown
from waferstream.machine.regions.region import PE_COSTS, PeCosts, Region
from waferstream.machine.regions.service import (
    FIRST_SERVICE,
    SERVED_CONTEXT,
    SERVICE,
    Service,
    ServiceSpec,
    pipelines,
)
from waferstream.machine.regions.token_time import TokenTime
from waferstream.machine.regions.weight_streaming import (
    WeightStreaming,
    crossover,
    resident_tokens_per_s,
)

__all__ = [
    "DECODERS",
    "DRAFTS",
    "FIRST_SERVICE",
    "PE_COSTS",
    "SERVED_CONTEXT",
    "SERVICE",
    "BatchTime",
    "Decoder",
    "Draft",
    "Layout",
    "PeCosts",
    "Pipeline",
    "Place",
    "Region",
    "Service",
    "ServiceSpec",
    "Stage",
    "TokenTime",
    "WeightStreaming",
    "crossover",
    "decode_cycles_per_layer",
    "decode_s",
    "decode_s_per_token",
    "end_to_end_s",
    "name_unknown",
    "pipelines",
    "prefill_cycles_per_layer",
    "prefill_s",
    "relayout_s",
    "resident_tokens_per_s",
]
