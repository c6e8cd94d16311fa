"""Numbers of messages: how a role notices that one was lost, or came twice.

Each direction between two roles has a sequence of its own, from 1. Links keep the order of a
sender's messages, so a message that is missing when a later one arrives is lost, however busy the
host is. Behind the last message of all comes a ``Tally``: a role that waits, or has done its part
of a protected job, states how many messages it has sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.messages.messages import Envelope, Tally

_Direction = tuple[str, str]
"""Source and target."""


class MessageNumbers:
    """The numbers of all messages that the roles of a process send and take.

    They count until the links are new.
    """

    def __init__(self) -> None:
        self._sent: Counter[_Direction] = Counter()
        self._stated: Counter[_Direction] = Counter()  # of those sent, by the newest tally
        self._taken: Counter[_Direction] = Counter()

    def restart(self) -> None:
        """Begin with 1 again: the links are new."""
        self._sent.clear()
        self._stated.clear()
        self._taken.clear()

    def numbered(self, envelope: Envelope) -> Envelope:
        """Return a message with the next number of its direction, or as it is if it has one."""
        if envelope.number:
            return envelope
        source, target = direction = envelope.source, envelope.target
        self._sent[direction] += 1
        return Envelope(source, target, envelope.message, self._sent[direction])

    def tallies(self) -> Iterator[Envelope]:
        """Yield a tally for each direction in which messages were sent since the last one."""
        for direction, count in self._sent.items():
            if count > self._stated[direction]:
                self._stated[direction] = count
                yield Envelope(*direction, Tally(0, count))

    def takes(self, envelope: Envelope) -> bool:
        """Return whether the role has to handle a message: no tally, and not a repeated one.

        Raises:
            ApplianceCorruptionError: A message was lost before this one.
        """
        direction, message = (envelope.source, envelope.target), envelope.message
        due = self._taken[direction] + 1
        if isinstance(message, Tally):
            if message.num_sent >= due:
                raise _lost(envelope, due)
            return False
        if envelope.number > due:
            raise _lost(envelope, due)
        if envelope.number == due:
            self._taken[direction] = due
            return True
        return not envelope.number


def _lost(envelope: Envelope, number: int) -> ApplianceCorruptionError:
    return ApplianceCorruptionError(
        f"a message to {envelope.target} was lost",
        code="message-lost",
        where=envelope.target,
        value=f"message {number} of {envelope.source}",
        rule="every message arrives, in the order of its sender",
    )
