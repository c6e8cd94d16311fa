"""Where the activations of a step lie on a wafer, and whether they fit."""

from wsc.timing.placement.fit import (
    Placement,
    check_fits,
    largest_micro_batch,
    largest_with_recompute,
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
from wsc.timing.placement.room import activation_bytes, code_bytes

__all__ = [
    "LayerReport",
    "Moment",
    "Placement",
    "PlacementReport",
    "activation_bytes",
    "check_fits",
    "code_bytes",
    "largest_micro_batch",
    "largest_with_recompute",
    "moments",
    "place_on_wafer",
    "placement_report",
    "recomputable",
    "recompute",
    "report_text",
    "stash_by_layer",
]
