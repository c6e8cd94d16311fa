"""Plan the SRAM of a wafer: what it holds during a step, and whether that fits."""

from waferstream.machine.sram.paging import Page, PagedBytes, paged_bytes
from waferstream.machine.sram.plan import (
    Overflow,
    SramPlan,
    check_fits,
    largest_micro_batch,
    largest_with_recompute,
    num_recomputed,
    plan_sram,
)
from waferstream.machine.sram.recompute import capacities, recomputable, recompute
from waferstream.machine.sram.report import (
    LayerReport,
    SramCourse,
    SramReport,
    report_text,
    sram_course,
    sram_report,
)
from waferstream.machine.sram.space import (
    Moment,
    code_bytes,
    data_bytes,
    describe,
    moments,
    stash_by_layer,
)

__all__ = [
    "LayerReport",
    "Moment",
    "Overflow",
    "Page",
    "PagedBytes",
    "SramCourse",
    "SramPlan",
    "SramReport",
    "capacities",
    "check_fits",
    "code_bytes",
    "data_bytes",
    "describe",
    "largest_micro_batch",
    "largest_with_recompute",
    "moments",
    "num_recomputed",
    "paged_bytes",
    "plan_sram",
    "recomputable",
    "recompute",
    "report_text",
    "sram_course",
    "sram_report",
    "stash_by_layer",
]
