"""Steps that a cluster runs in one job, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.core.program.program import ProgramKind


@dataclass(frozen=True)
class StepsUnderWay:
    """Steps of a running job; ``before`` is the newest step that the cluster reported before."""

    kind: ProgramKind
    first: int
    last: int
    before: int

    def newest(self, reported: int) -> int:
        """Return the newest step that has begun, from the newest one that the cluster reports."""
        return self.first if reported == self.before else min(max(reported, self.first), self.last)
