"""All roles of a cluster as one object, wherever they run.

``LocalRoles`` keeps them in this process, ``RayRoles`` as actors. The coordinator knows no more
of a cluster than this.
"""

from __future__ import annotations

from typing import Any, Protocol

from wsc.core.role import Job, Report


class Roles(Protocol):
    """The roles of one running cluster."""

    def run(self, job: Job) -> list[Report]:
        """Let every role do its part of a job; returns when all are finished.

        Raises a WaferStreamError when a role fails (as of ``call``), dies, or waits too long; the
        roles are then unusable and must be shut down.
        """

    def call(self, role: str, method: str, *args: Any) -> Any:
        """Call a method of one role between jobs and return its result.

        ``method`` may name, with dots, a method of a part of the role: ``store.fill``. Raises a
        WaferStreamError: the role's own, or an ApplianceRuntimeServerError for any other.
        """

    def call_all(self, method: str, *args: Any) -> None:
        """Call a method of every role, side by side where they can."""

    def shutdown(self) -> None:
        """End every role, and whatever process, socket and memory came with it. Idempotent."""
