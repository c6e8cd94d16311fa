"""What to do after a failure: the rules, as a function of what has failed so far.

    an error that would come again (configuration, data, NaN, memory)    give up
    more failures in a row than allowed, no step finished in between     give up
    a weight server is lost, and with it its replica if there is one     give up
    a host is lost, and with it the places of its roles                  give up
    a system that failed three times within a few steps is tainted       shrink
    any other role that did so is named in the log, and replaced         replace
    a system has computed wrong bits, which taints it, too               shrink
    some other role is lost                                              replace
    every role is alive                                                  retry

Whoever holds a checkpoint may start a cluster anew after a lost weight server, or on the hosts that
are left, with as many systems as these take (appliance.recovery.replay, appliance.ray.starter).

A tainted system comes back at the start of a job once it has rested; each further taint doubles
the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

from appliance.spec import AutoRestart
from waferstream.core.errors import (
    ApplianceCorruptionError,
    ApplianceDeadlockError,
    ApplianceHealthPollException,
    ApplianceRuntimeServerError,
    ApplianceServiceInterrupted,
    WaferStreamError,
)
from waferstream.core.roles.names import node_name, server_name
from waferstream.core.roles.verification import DisputedBitsError

Action = Literal["retry", "replace", "shrink", "give up"]

TAINTING_FAILURES = 3
TAINTING_STEPS = 20
"""A role that is lost so often within so many finished steps keeps failing; a system is tainted."""

REST_STEPS = 20
"""Steps without a tainted system, before the first return."""

LOST_HOST = ("host-lost", "host-silent")
"""Codes of errors that say that a role is lost with its host."""

_PASSING = (
    ApplianceRuntimeServerError,
    ApplianceDeadlockError,
    ApplianceCorruptionError,
    ApplianceHealthPollException,
    ApplianceServiceInterrupted,
)
"""Errors of processes, hosts and links, which another try may not meet."""


class Decision(NamedTuple):
    """What to do, with how many systems, and why."""

    action: Action
    num_csx: int
    why: str


class Policy:
    """The decision after a failure, from the rules above and the failures of the run so far.

    Args:
        limits: What the user allows.
        num_csx: The systems of the run.
        replicas: The replica of each weight server, if there are replicas.
    """

    def __init__(
        self, limits: AutoRestart, num_csx: int, replicas: Mapping[str, str] | None = None
    ) -> None:
        self._limits = limits
        self._replicas = replicas or {}
        self._whole = num_csx
        self.num_csx = num_csx
        """The systems with which the run goes on."""
        self.num_allowed = limits.max_num_restarts
        """The failures in a row that may be answered inside the cluster."""
        self.num_failures = 0
        """The failures since the last finished step."""
        self._steps = 0  # finished
        self._losses: dict[str, deque[int]] = {}  # finished steps at the last losses, by role
        self._returns_at = 0
        self._rest_steps = REST_STEPS

    def decide(
        self, error: WaferStreamError, lost: Collection[str], wrong: Collection[str] = ()
    ) -> Decision:
        """Return the decision after a failure.

        Args:
            error: Why the job ended.
            lost: The roles that have to be replaced.
            wrong: Those among them that have computed wrong bits.
        """
        if lost or not isinstance(error, DisputedBitsError):  # which the next attempt decides
            self.num_failures += 1
        if not isinstance(error, _PASSING):
            return Decision("give up", self.num_csx, "the error would come again")
        if self.num_failures > self.num_allowed:
            before = self._limits.max_num_restarts - self.num_allowed
            why = f"{before + self.num_failures} failures in a row, max_num_restarts is "
            return Decision("give up", self.num_csx, f"{why}{self._limits.max_num_restarts}")
        if gone := self._what_is_gone(error, lost):
            return Decision("give up", self.num_csx, gone)
        often = [role for role in sorted(lost) if self._keeps_failing(role)]
        tainted = [*wrong, *(role for role in often if _is_kind(role, node_name))]
        failing = f"; {', '.join(often)} keeps failing" if often else ""
        if tainted and self.num_csx > self._limits.min_num_csx:
            self._losses.clear()
            self.num_csx -= 1
            self._returns_at = self._steps + self._rest_steps
            self._rest_steps *= 2
            why = "computes wrong bits" if wrong else "keeps failing"
            return Decision("shrink", self.num_csx, f"{tainted[0]} {why} and is tainted")
        if lost:
            return Decision("replace", self.num_csx, f"{', '.join(sorted(lost))} lost{failing}")
        return Decision("retry", self.num_csx, "no role is lost")

    def final_error(self, error: WaferStreamError) -> WaferStreamError:
        """Return the error that a given-up failure ends with.

        It is ``error`` where another cluster may help. More failures in a row than allowed are the
        end of the run, as each further cluster would have as many again.
        """
        if isinstance(error, _PASSING) and self.num_failures > self.num_allowed:
            return restarts_exhausted(error, self._limits.max_num_restarts)
        return error

    def note_steps(self, count: int) -> None:
        """Note steps that are finished, whatever happens next."""
        if count:
            self._steps += count
            self.num_failures = 0

    def size_of_next_job(self) -> int:
        """Return the number of systems for a new job: all, once tainted ones have rested."""
        if self._steps >= self._returns_at:
            self.num_csx = self._whole
        return self.num_csx

    def _what_is_gone(self, error: WaferStreamError, lost: Collection[str]) -> str | None:
        """Name the lost parts that this cluster cannot replace."""
        servers = [role for role in lost if _is_kind(role, server_name)]
        if any(self._replicas.get(server, server) in lost for server in servers):
            return "weights are lost"
        return "a host is lost" if error.code in LOST_HOST else None

    def _keeps_failing(self, role: str) -> bool:
        """Note that a role is lost; return whether it was lost again and again within few steps."""
        losses = self._losses.setdefault(role, deque(maxlen=TAINTING_FAILURES))
        losses.append(self._steps)
        return len(losses) == TAINTING_FAILURES and losses[-1] - losses[0] <= TAINTING_STEPS


def restarts_exhausted(error: WaferStreamError, limit: int) -> ApplianceRuntimeServerError:
    """Return the error for a run that was recovered ``limit`` times and failed again."""
    return ApplianceRuntimeServerError(
        f"the cluster was lost again: {error.what}",
        code="restarts-exhausted",
        where=error.where,
        value=error.value,
        rule=f"at most {limit} recoveries without progress (max_num_restarts)",
        remedy="run the same command again: it goes on from the last checkpoint",
    )


def _is_kind(role: str, name_of: Callable[[int], str]) -> bool:
    """Return whether a role has a name of a kind: ``node_name``, ``server_name``, ..."""
    return role.startswith(name_of(0).rstrip("0"))
