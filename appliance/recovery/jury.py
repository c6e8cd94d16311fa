"""The jury of a verified run: it decides from votes which system computes wrong bits.

two systems differ        the step runs again, and a third one computes the same gradients
all votes are there       who contradicts the majority is wrong: tainted, and replaced
votes are equally many    nobody knows who is right, so all that voted are replaced
"""

from __future__ import annotations

from collections.abc import Collection

from waferstream.core.errors import ApplianceCorruptionError, WaferStreamError
from waferstream.core.roles.verification import Dispute, DisputedBitsError

WRONG = "wrong-bits"
"""Code of the error of a system that has computed wrong bits."""


class Jury:
    """The open dispute of a run, if there is one."""

    def __init__(self) -> None:
        self.dispute: Dispute | None = None

    def judge(self, error: WaferStreamError) -> dict[str, WaferStreamError]:
        """Return the systems that cannot be trusted after a failure, each with its error.

        A second failure on the same unit has the votes of the first one, and ends the dispute.
        """
        if not isinstance(error, DisputedBitsError):
            return {}
        before, self.dispute = self.dispute, error.dispute
        if before is None or before.unit != error.dispute.unit:
            return {}
        self.dispute = None
        wrong = error.dispute.wrong()
        return {
            system: _untrusted(system, error.dispute, wrong)
            for system in wrong or error.dispute.systems
        }

    def dismiss(self) -> None:
        """Close the dispute: the systems that have voted are not there any more."""
        self.dispute = None


def _untrusted(system: str, dispute: Dispute, wrong: Collection[str]) -> WaferStreamError:
    step, round_index, _ = dispute.unit
    ballots = ", ".join(f"{b.system}: {b.digest.hex()}" for b in dispute.ballots)
    what = "computed wrong bits" if wrong else "may have computed wrong bits"
    return ApplianceCorruptionError(
        f"{system} {what}",
        code=WRONG if wrong else "bits-undecided",
        where=f"step {step}, round {round_index}",
        value=ballots,
        rule="every system computes the same bits (runtime.verify)",
        remedy="check that system",
    )
