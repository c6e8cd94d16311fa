"""What lies in the SRAM of a wafer during a step, where, and whether it fits."""

from wsc.timing.placement.capacity import capacities
from wsc.timing.placement.fit import (
    Placement,
    check_fits,
    largest_micro_batch,
    largest_with_recompute,
    num_recomputed,
    place_on_wafer,
)
from wsc.timing.placement.liveness import Moment, moments, stash_by_layer
from wsc.timing.placement.recompute import recomputable, recompute
from wsc.timing.placement.report import (
    LayerReport,
    PlacementReport,
    placement_report,
    report_text,
)
from wsc.timing.placement.sram import code_bytes, data_bytes

__all__ = [
    "LayerReport",
    "Moment",
    "Placement",
    "PlacementReport",
    "capacities",
    "check_fits",
    "code_bytes",
    "data_bytes",
    "largest_micro_batch",
    "largest_with_recompute",
    "moments",
    "num_recomputed",
    "place_on_wafer",
    "placement_report",
    "recomputable",
    "recompute",
    "report_text",
    "stash_by_layer",
]
