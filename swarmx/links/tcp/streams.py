"""The two sides of TCP connections: threads that accept and read, and threads that write.

Who connects has to show, within a time limit, a certificate of the directory, and the name that
belongs to it. Until then it is a stranger, and few strangers are heard at a time. One more takes
the place of the oldest: a role says who it is in milliseconds, and waits for none who never does.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from google.protobuf.message import DecodeError

from swarmx.links.certificates import Credentials
from swarmx.links.endpoint import MOST_WAITING, Address, damaged, no_memory, stalled_peer
from swarmx.links.inbox import Inbox
from swarmx.links.tcp.frames import (
    FrameReader,
    FrameWriter,
    ReceivedSlabs,
    StalledFrameError,
    write_record,
)
from swarmx.links.tcp.sockets import end_connection, identity_of, secure_accepted
from swarmx.links.wire.messages import PROTOCOL_VERSION, DamagedMessageError
from swarmx.links.wire.wire_pb2 import (  # type: ignore[attr-defined]  # made at import
    Header,
    Hello,
    Welcome,
)
from waferstream.core.errors import WaferStreamError
from waferstream.core.messages.messages import Envelope
from waferstream.core.units import KIB

_MOST_STRANGERS = 64
"""Connections at a time that have not shown a certificate of the directory yet."""
_MOST_HELLO_BYTES = 4 * KIB


class InboundStreams:
    """The connections on which peers send to one role.

    Args:
        role: Whose messages they carry.
        session: Peers of another one are refused.
        own: The certificate that the role shows.
        directory: Addresses of the peers; it may grow.
        inbox: What arrives is put there.
        slabs: Memory for payloads.
        stall_timeout_s: Limit of the wait for the rest of a message.
    """

    def __init__(
        self,
        role: str,
        session: str,
        own: Credentials,
        directory: Mapping[str, Address],
        inbox: Inbox,
        slabs: ReceivedSlabs,
        stall_timeout_s: float,
    ) -> None:
        self.refused = 0
        self._role, self._session, self._own = role, session, own
        self._directory = directory
        self._inbox, self._slabs = inbox, slabs
        self._stall_timeout_s = stall_timeout_s
        self._threads: dict[threading.Thread, socket.socket] = {}
        self._strangers: dict[threading.Thread, None] = {}  # the oldest first
        self._counting = threading.Lock()  # of strangers
        self._readers: dict[str, threading.Thread] = {}
        self._listener: socket.socket | None = None
        self._is_closing = False

    def listen(self, listener: socket.socket) -> None:
        """Begin to accept connections."""
        self._listener = listener
        listener.listen(socket.SOMAXCONN)
        self._begin(self._accept, listener)

    def wait_for_the_last_message(self, peer: str, timeout_s: float) -> None:
        """Wait until a peer that has ended is read to its end, at most for a time."""
        reader = self._readers.get(peer)
        if reader is not None:
            reader.join(timeout_s)

    def close(self) -> None:
        """End all connections and their threads."""
        if self._listener is None:
            return
        self._is_closing = True
        # The first is the thread that accepts: when it has ended, no further one begins.
        while threads := list(self._threads.items()):
            thread, connection = threads[0]
            end_connection(connection)
            thread.join()
            self._threads.pop(thread, None)
        self._listener.close()

    def _begin(self, serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
        thread = threading.Thread(target=serve, args=(connection,), daemon=True)
        self._threads[thread] = connection
        thread.start()

    def _note_stranger(self) -> None:
        """Count this thread's connection as a stranger; end the oldest if there are too many."""
        thread = threading.current_thread()
        with self._counting:
            oldest = next(iter(self._strangers), thread)
            is_full = len(self._strangers) >= _MOST_STRANGERS
            if is_full:
                del self._strangers[oldest]
            self._strangers[thread] = None
        if is_full and (connection := self._threads.get(oldest)) is not None:
            self.refused += 1
            end_connection(connection)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:  # closed
                return
            self._begin(self._serve, accepted)

    def _serve(self, plain: socket.socket) -> None:
        """Read one connection from its first byte to its last."""
        with ExitStack() as stack:
            stack.callback(self._threads.pop, threading.current_thread(), None)
            stack.enter_context(plain)
            self._note_stranger()
            admitted = self._admitted(plain, stack)
            if admitted is None:
                return
            peer, reader = admitted
            self._readers[peer] = threading.current_thread()
            try:
                self._read(peer, reader)
            finally:
                self._inbox.lose(peer)

    def _admitted(self, plain: socket.socket, stack: ExitStack) -> tuple[str, FrameReader] | None:
        """Return the peer of a connection, and what reads its messages; None for a stranger."""
        trusted = "".join({address.identity for address in dict(self._directory).values()})
        try:
            connection = stack.enter_context(secure_accepted(plain, self._own, trusted))
            self._threads[threading.current_thread()] = connection
            if self._is_closing:  # ``close`` may have ended the plain socket instead of this one
                return None
            reader = FrameReader(connection)
            peer = self._welcome(connection, reader)
            connection.settimeout(self._stall_timeout_s)
        except (OSError, DecodeError, DamagedMessageError):
            self.refused += 1
            return None
        finally:
            with self._counting:
                self._strangers.pop(threading.current_thread(), None)
        return None if peer is None else (peer, reader)

    def _welcome(self, connection: ssl.SSLSocket, reader: FrameReader) -> str | None:
        """Answer the Hello of a connection; return the peer's name, None if it is refused."""
        connection.do_handshake()
        hello = Hello.FromString(reader.record(_MOST_HELLO_BYTES))
        known = self._directory.get(hello.role)
        answer = Welcome.ACCEPTED
        if hello.version != PROTOCOL_VERSION:
            answer = Welcome.OTHER_VERSION
        elif hello.session != self._session:
            answer = Welcome.OTHER_SESSION
        elif known is None or known.identity != identity_of(connection):
            answer = Welcome.REFUSED
        if answer != Welcome.ACCEPTED:
            self.refused += 1
        welcome = Welcome(version=PROTOCOL_VERSION, answer=answer)
        write_record(connection, welcome.SerializeToString())
        return str(hello.role) if answer == Welcome.ACCEPTED else None

    def _read(self, peer: str, reader: FrameReader) -> None:
        """Put the messages of a peer into the inbox until its connection ends."""
        check = partial(self._check, peer)
        try:
            while self._inbox.put(reader.message(self._slabs, check)):
                pass
        except DamagedMessageError as error:
            self._inbox.fail(damaged(self._role, peer, error))
        except ssl.SSLError as error:  # damaged on the way
            self._inbox.fail(damaged(self._role, peer, error.reason or error))
        except StalledFrameError:
            self._inbox.fail(stalled_peer(self._role, peer, self._stall_timeout_s))
        except OSError:
            pass  # the peer has ended, perhaps within a message
        except WaferStreamError as error:
            self._inbox.fail(error)
        except (MemoryError, RuntimeError) as error:  # torch raises the latter
            self._inbox.fail(no_memory(self._role, peer, error))

    def _check(self, peer: str, header: Header) -> None:
        if (header.source, header.target) != (peer, self._role):
            raise DamagedMessageError(f"from {header.source} to {header.target}")


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
