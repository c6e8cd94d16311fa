"""Memory for payloads that come over a network, until the role gives their credits."""

from __future__ import annotations

from swarmx.links.endpoint import PAYLOAD_LIMIT_BYTES
from swarmx.links.wire.messages import DamagedMessageError
from waferstream.core.messages.messages import Credit, Envelope, credit_of
from waferstream.core.messages.payload import Arena, Slab

CREDITED = frozenset({"weights_ready", "gradient_ready", "batch_ready", "update_ready"})
"""Header fields of the messages that have a credit; see ``credit_of``."""


class ReceivedSlabs:
    """Slabs that hold what has arrived; each is freed when the role sends the credit for it.

    So a switch hands a payload from another host to all its children on this host in place.
    """

    def __init__(self, arena: Arena) -> None:
        self.limit_bytes = PAYLOAD_LIMIT_BYTES
        self._arena = arena
        self._held: dict[tuple[str, Credit], Slab] = {}

    def allocate(self, num_bytes: int) -> Slab:
        """Return memory for a payload."""
        return self._arena.allocate(num_bytes)

    def hold(self, envelope: Envelope, slab: Slab) -> None:
        """Keep the memory of a received message until its credit is sent.

        Raises:
            DamagedMessageError: The same message came before, and its credit is still due.
        """
        credit = credit_of(envelope.message)
        if credit is None:
            return
        key = envelope.source, credit
        if key in self._held:
            raise DamagedMessageError(f"{type(envelope.message).__name__} twice")
        self._held[key] = slab

    def release(self, envelope: Envelope) -> None:
        """Free the memory for which a message is the credit, if it came over this link."""
        if not isinstance(envelope.message, Credit):
            return
        slab = self._held.pop((envelope.target, envelope.message), None)
        if slab is not None:
            slab.free()
