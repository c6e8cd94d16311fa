"""Messages that threads of a link have received, until the role takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from swarmx.links.endpoint import MOST_WAITING, peer_gone, queue_full, stalled
from waferstream.core.errors import WaferStreamError
from waferstream.core.messages.messages import Abort, Envelope


@dataclass(frozen=True)
class Lost:
    """The end of a peer's messages."""

    peer: str


Arrival = Envelope | Lost | WaferStreamError


class Inbox:
    """What has arrived, in order: any thread puts, one thread receives."""

    def __init__(self, role: str, notify: Callable[[], None] | None = None) -> None:
        """Make an empty inbox.

        Args:
            role: The role that receives from it.
            notify: Called after every arrival.
        """
        self._role = role
        self._notify = notify
        self._arrived: SimpleQueue[Arrival] = SimpleQueue()
        self._lost: list[str] = []
        self._is_aborted = False

    @property
    def is_aborted(self) -> bool:
        """Whether a message, which may still wait here, asks the role to end its job."""
        return self._is_aborted

    @property
    def num_waiting(self) -> int:
        """Number of arrivals that nobody has taken."""
        return self._arrived.qsize()

    def put(self, envelope: Envelope) -> bool:
        """Add a message; return False, and add an error instead, if too many wait."""
        if self._arrived.qsize() >= MOST_WAITING:
            self.fail(queue_full(self._role, envelope.source))
            return False
        self._is_aborted |= isinstance(envelope.message, Abort)
        self._add(envelope)
        return True

    def fail(self, error: WaferStreamError) -> None:
        """Let the next ``receive`` after all earlier arrivals raise an error."""
        self._add(error)

    def lose(self, peer: str) -> None:
        """State that nothing more comes from a peer."""
        self._add(Lost(peer))

    def has_lost(self, peer: str) -> bool:
        """Return whether the role has learned of a peer's end."""
        return peer in self._lost

    def arrivals(self) -> Iterator[Arrival]:
        """Yield the messages that have arrived, without waiting."""
        while not self._arrived.empty():
            arrival = self._arrived.get()
            if isinstance(arrival, Lost):
                self._lost.append(arrival.peer)
            yield arrival

    def receive(self, timeout_s: float) -> Envelope:
        """Return the next message; see ``Endpoint.receive``."""
        while True:
            try:
                arrival = self._arrived.get(timeout=0 if self._lost else timeout_s)
            except Empty:
                if self._lost:
                    raise peer_gone(self._role, self._lost[0]) from None
                raise stalled(self._role, timeout_s) from None
            match arrival:
                case Envelope():
                    return arrival
                case Lost(peer):
                    self._lost.append(peer)
                case error:
                    raise error

    def _add(self, arrival: Arrival) -> None:
        self._arrived.put(arrival)
        if self._notify is not None:
            self._notify()
