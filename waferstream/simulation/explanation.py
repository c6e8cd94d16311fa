"""Explain a micro-batch: why its size was taken, what it takes to fit, and what limits the next."""

from __future__ import annotations

from collections.abc import Iterator

from waferstream.core.program.micro_batches import SizeRange, explored_sizes
from waferstream.core.units import counted, format_bytes
from waferstream.machine.sram import SramPlan, data_bytes
from waferstream.simulation.study import Study

_REASONS = {
    "auto": "the largest that fits and leaves max(8, systems) micro-batches",
    "fill_wafer": "the one of the fewest rounds that fits",
    "explore": "the one with the shortest step",
    "integer": "the stated one, or the closest that cuts the batch evenly",
    "none": "the whole share of a system",
}


def explain(study: Study, num_csx: int) -> str:
    """Return why a study's micro-batch on so many systems has its size, as lines of text."""
    size = study.micro_batch_size(num_csx)
    return "\n".join(
        [
            f"Micro-batch of {counted(size, 'sample')} on {counted(num_csx, 'system')}",
            f"  taken     {_reason(study.policy.name)} (policy {study.policy.name})",
            *_fitting(study),
            *_held(study.simulator.sram_plan(size)),
            *_next(study, num_csx, size),
        ]
    )


def _reason(policy: str) -> str:
    """Return why a policy takes its size; one of the user's own is named by an import path."""
    return _REASONS.get(policy, "at most what that class returns")


def _fitting(study: Study) -> Iterator[str]:
    alone, recomputed, paged = study.simulator.largest_micro_batches
    yield (
        f"  fits      at most {alone:,} with nothing recomputed, {recomputed:,} with all layers "
        f"recomputed, {paged:,} with their inputs on activation servers"
    )


def _held(plan: SramPlan) -> Iterator[str]:
    samples, peak = plan.program.micro_batch_size, plan.peak
    at = plan.program.segments[peak.segment]
    yield (
        f"  here      {counted(len(plan.recomputed), 'layer')} recomputed, "
        f"{format_bytes(plan.away_bytes)} of inputs on activation servers"
    )
    yield (
        f"  peak      {format_bytes(plan.peak_bytes)} of {format_bytes(data_bytes(plan.wafer))}, "
        f"in {at.layer} {at.phase}: {format_bytes(peak.stash.of(samples))} kept, "
        f"{format_bytes(peak.working.of(samples))} working set, "
        f"{format_bytes(plan.buffers[peak.segment])} of streams"
    )
    if plan.runs_in_blocks:
        counts = [segment.blocks for segment in plan.program.segments if segment.blocks > 1]
        yield (
            f"  blocks    {counted(len(counts), 'segment')} in {min(counts):,} to {max(counts):,} "
            "blocks, one after the other: their weights stream to each"
        )


def _next(study: Study, num_csx: int, size: int) -> Iterator[str]:
    """Yield what limits the next larger size, if the share of a system has one."""
    larger = _next_size(study, num_csx, size)
    if larger is None:
        yield "  next      none: a system's whole share of the batch is in one micro-batch"
        return
    most = study.simulator.largest_micro_batch
    if size > most or study.simulator.largest_plan.runs_in_blocks:
        yield f"  next      {larger:,} samples would run in more blocks, if they fit at all"
        return
    if larger <= most:
        yield f"  next      {larger:,} samples would fit, too: the policy limits the size"
        return
    plan = study.simulator.largest_plan
    at = plan.program.segments[plan.peak.segment]
    more = (larger - most) * plan.peak.footprint.sample_bytes
    yield (
        f"  next      {larger:,} samples would need {format_bytes(more)} more in {at.layer} "
        f"{at.phase} than the {most:,} that fit"
    )


def _next_size(study: Study, num_csx: int, size: int) -> int | None:
    """Return the next larger size that cuts a system's share evenly; None if there is none."""
    batch = study.batch(num_csx)
    sizes = explored_sizes(batch, SizeRange(), num_csx, study.group_of_samples)
    return next((larger for larger in sizes if larger > size), None)
