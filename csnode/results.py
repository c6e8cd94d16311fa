"""What a CS node reports of a step: to the coordinator at the end, or to the weight servers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from csnode.micro_batch import MicroBatch
from waferstream.core.messages.messages import StepDone
from waferstream.core.program.program import Program
from waferstream.core.roles.role import Report


def note_results(
    report: Report, program: Program, step: int, batches: Iterable[MicroBatch], *, keeps_all: bool
) -> None:
    """Note the results of micro-batches in a report; tensors only where it ``keeps_all``."""
    unread = {*program.state.results, *program.norms.results}
    if not keeps_all:
        unread |= {result.position for result in program.tensor_results}
    places = range(program.guarded.stop)
    for batch in batches:
        results = tuple(None if place in unread else batch.results[place] for place in places)
        report.results[step, batch.index] = results


def with_results(done: StepDone, report: Report) -> StepDone:
    """Return the end of a step with its results and findings, which outlive the node then."""
    step = done.step
    results = tuple((index, values) for (of, index), values in report.results.items() if of == step)
    findings = tuple(finding for finding in report.findings if finding.step == step)
    return replace(done, results=results, findings=findings)
