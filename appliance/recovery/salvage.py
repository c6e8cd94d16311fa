"""What is left of an interrupted job: the last step that is done, and the results up to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from waferstream.core.messages.messages import COORDINATOR
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.activities import RECOVER, Interval, Place
from waferstream.core.roles.role import Job, Progress, Report


class Salvage:
    """Results of the finished steps of one job, over all its attempts."""

    def __init__(self) -> None:
        self.report = Report(COORDINATOR)

    @contextmanager
    def recovering(self, kind: ProgramKind, why: str) -> Iterator[None]:
        """Report the time of a block as that of a recovery, for traces."""
        start_ns = time.perf_counter_ns()
        yield
        end_ns = time.perf_counter_ns()
        self.report.intervals.append(Interval(RECOVER, start_ns, end_ns, Place(kind), why))

    def take(self, attempt: Job, found: Sequence[Progress | None]) -> Job:
        """Keep what the weight servers know of an attempt; return the rest of the job.

        The last step of a job is never done: its results are not in the servers.

        Args:
            attempt: The interrupted job.
            found: What each weight server knows, perhaps only of an earlier attempt.
        """
        known = [one for one in found if one is not None and one.attempt == attempt.attempt]
        done = attempt.first_step - 1
        if len(known) == len(found) or not attempt.kind.updates:
            applied = min((one.applied_step for one in known), default=done)
            kept = max((one.kept_step for one in known), default=done)
            done = max(done, min(applied, kept, attempt.last_step - 1))
        for one in known:
            self._keep(one.report, done)
        scale = self.report.loss_scales.get(done, attempt.loss_scale)
        return replace(attempt, first_step=done + 1, loss_scale=scale)

    def _keep(self, found: Report, done: int) -> None:
        """Add what belongs to finished steps, once."""
        mine = self.report
        mine.results |= {key: v for key, v in found.results.items() if key[0] <= done}
        mine.norms |= {step: norm for step, norm in found.norms.items() if step <= done}
        mine.loss_scales |= {step: s for step, s in found.loss_scales.items() if step <= done}
        for step, norms in found.step_norms.items():  # every server has those of its parameters
            if step <= done:
                mine.step_norms.setdefault(step, {}).update(norms)
        new = (one for one in found.findings if one.step <= done and one not in mine.findings)
        mine.findings += new
