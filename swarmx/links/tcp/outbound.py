"""The sending side of a TCP connection: a queue of messages, and the thread that writes them."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator

from swarmx.links.endpoint import MOST_WAITING
from swarmx.links.tcp.frames import FrameWriter
from swarmx.links.tcp.sockets import end_connection
from waferstream.core.errors import WaferStreamError
from waferstream.core.messages.messages import Envelope


class Outbound:
    """Messages on their way to one peer.

    Args:
        connection: To the peer, which never writes to it from now on.
        on_end: Called when the connection has ended, with the reason.
    """

    def __init__(
        self, connection: socket.socket, on_end: Callable[[Exception | None], None]
    ) -> None:
        self.has_ended = False
        self._connection = connection
        self._on_end = on_end
        self._queue: deque[Envelope] = deque()
        self._is_closing = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether as many messages wait as may."""
        return len(self._queue) >= MOST_WAITING

    def put(self, envelope: Envelope) -> None:
        """Queue a message; the thread reads its payload later."""
        self._queue.append(envelope)
        os.eventfd_write(self._wake, 1)

    def finish(self) -> None:
        """Let the thread end the connection after the last message."""
        self._is_closing = True
        os.eventfd_write(self._wake, 1)

    def close(self, timeout_s: float) -> None:
        """Wait until the peer has read what was sent, at most for a time; then close."""
        self._thread.join(timeout_s)
        end_connection(self._connection)
        self._thread.join()
        self._connection.close()
        os.close(self._wake)

    def _serve(self) -> None:
        reason: Exception | None = None
        try:
            self._write_until_the_end()
        except (OSError, WaferStreamError) as error:
            reason = error
        finally:
            self.has_ended = True
            self._on_end(reason)

    def _write_until_the_end(self) -> None:
        """Write messages as they come; return when the peer has closed the connection."""
        writer, events = FrameWriter(self._connection), select.poll()
        for descriptor in (self._wake, self._connection.fileno()):
            events.register(descriptor, select.POLLIN)
        while True:
            writer.write(self._taken())
            if self._is_closing and not self._queue:
                end_connection(self._connection, socket.SHUT_WR)
                events.unregister(self._wake)
                self._is_closing = False
            ready = dict(events.poll())
            if self._connection.fileno() in ready:
                return
            os.eventfd_read(self._wake)

    def _taken(self) -> Iterator[Envelope]:
        while self._queue:
            yield self._queue.popleft()
