"""The seam between roles and whatever carries their messages between them."""

from __future__ import annotations

from typing import Protocol

from wsc.core.messages import Envelope


class Endpoint(Protocol):
    """One role's mailbox: ordered, reliable, addressed by role name."""

    name: str

    def send(self, envelope: Envelope) -> None:
        """Hand over a message; returns before it is read.

        Raises ApplianceRuntimeServerError when the target is gone.
        """

    def receive(self, timeout_s: float) -> Envelope:
        """The next message, in the order of arrival; messages of one sender keep their order.

        Raises ApplianceRuntimeServerError when a peer died, ApplianceDeadlockError on timeout.
        """

    def close(self) -> None:
        """Close for good; peers notice."""
