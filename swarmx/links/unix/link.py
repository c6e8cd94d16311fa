"""The link between processes of one host: sockets in Linux' abstract name space (unix(7)).

An abstract name is not a file: it disappears with its socket. The sockets are SOCK_SEQPACKET:
ordered and reliable like streams, with record boundaries. Each role listens on one, and opens one
to every role it sends to, on which it first sends its name. So a connection carries one direction,
and its end shows either side that the other is gone. All work happens inside ``send`` and
``receive``; there is no thread.

    record:   1 byte: "+" if the message continues in the next record, "." if not
              up to 32 KiB: a piece of the message, packed as ``packed_message`` says

Nearly all messages fit one record. Anyone on the host can connect to an abstract name, or take it.
So either side asks the kernel for user and process of the other (SO_PEERCRED): the process must be
the one that the directory names for the role. Several roles of a process may share an address.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping

from swarmx.links.endpoint import (
    MOST_WAITING,
    PAYLOAD_LIMIT_BYTES,
    Address,
    aborted,
    damaged,
    not_authentic,
    peer_gone,
    queue_full,
    stalled,
    unknown_role,
    unreachable,
)
from swarmx.links.inbox import Inbox, Lost
from swarmx.links.unix.connection import (
    Inbound,
    decode_message,
    encode_message,
    is_at,
    is_open,
    listen,
    process_of,
    receive_record,
    try_connect,
)
from swarmx.links.wire.messages import MOST_HEADER_BYTES, DamagedMessageError
from waferstream.core.messages.messages import Abort, Envelope
from waferstream.core.units import KIB

_MORE, _LAST = b"+", b"."
_PIECE_BYTES = 32 * KIB
"""A longer message is sent in several records."""
_RETRY_S = 0.002
"""Pause before a peer that does not listen yet is tried again."""


class SocketEndpoint:
    """One role's mailbox on this host; not thread-safe."""

    def __init__(
        self, name: str, session: str, start_timeout_s: float, stall_timeout_s: float
    ) -> None:
        self.name = name
        self.address = Address(f"waferstream/{session}/{name}", str(os.getpid()))
        self.refused = 0
        self._start_timeout_s = start_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._payload_limit = PAYLOAD_LIMIT_BYTES
        self._directory: dict[str, Address] = {}
        self._outbound: dict[str, socket.socket] = {}
        self._lost: list[str] = []
        self._inbox: deque[Envelope] = deque()
        self._record = memoryview(bytearray(1 + _PIECE_BYTES))
        self._selector = selectors.DefaultSelector()
        self._listener = listen(self.address.place)
        self._watch(self._listener, self._accept)

    def connect(self, directory: Mapping[str, Address]) -> None:
        """Record the addresses of other roles; the first ``send`` to a role opens a connection."""
        self._directory.update(directory)

    def limit_payloads(self, num_bytes: int) -> None:
        self._payload_limit = num_bytes

    def send(self, envelope: Envelope) -> None:
        """Write a message to the target's socket.

        Raises:
            ApplianceRuntimeServerError: The target is gone, never listens, or another process
                is at its address.
            ApplianceDeadlockError: The target has not read for ``stall_timeout_s``.
        """
        target = envelope.target
        if target not in self._outbound:
            self._open(target)
        message = encode_message(envelope)
        last_start = (len(message) - 1) // _PIECE_BYTES * _PIECE_BYTES
        for start in range(0, last_start, _PIECE_BYTES):
            self._send_record(target, _MORE + message[start : start + _PIECE_BYTES])
        self._send_record(target, _LAST + message[last_start:])

    def receive(self, timeout_s: float) -> Envelope:
        """Return the next message; messages that a peer sent before its end still arrive."""
        deadline = time.monotonic() + timeout_s
        while not self._inbox:
            wait_s = 0.0 if self._lost else max(0.0, deadline - time.monotonic())
            if not self._poll(wait_s):
                raise (
                    peer_gone(self.name, self._lost[0])
                    if self._lost
                    else stalled(self.name, timeout_s)
                )
        return self._inbox.popleft()

    def num_waiting(self) -> int:
        """Return how many messages wait, those in the kernel's buffers included."""
        while self._poll(0.0):
            pass
        return len(self._inbox)

    def close(self) -> None:
        """Close every socket; peers notice. Idempotent."""
        for key in list((self._selector.get_map() or {}).values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def is_aborted(self) -> bool:
        """Read what has arrived; return whether a message asks the role to end its job."""
        self._poll(0.0)
        return any(isinstance(each.message, Abort) for each in self._inbox)

    def also_receive(self, inbox: Inbox, arrival: int) -> None:
        """Receive what another link puts into an inbox, too; ``arrival`` is an event of it."""

        def take() -> None:
            os.eventfd_read(arrival)
            for item in inbox.arrivals():
                match item:
                    case Envelope():
                        self._inbox.append(item)
                    case Lost(peer):
                        self._lost.append(peer)
                    case error:
                        raise error

        self._selector.register(arrival, selectors.EVENT_READ, take)

    def _poll(self, wait_s: float) -> bool:
        """Serve every socket that is ready; return False if none was within ``wait_s``."""
        ready = self._selector.select(wait_s)
        for key, _ in ready:
            key.data()
        return bool(ready)

    def _watch(self, watched: socket.socket, callback: Callable[[], None]) -> None:
        self._selector.register(watched, selectors.EVENT_READ, callback)

    def _forget(self, watched: socket.socket) -> None:
        self._selector.unregister(watched)
        watched.close()

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        accepted.setblocking(False)
        inbound = Inbound(accepted, process_of(accepted))
        if inbound.process.user != os.getuid():  # it could hold a descriptor without a name
            self.refused += 1
            accepted.close()
            return
        self._watch(accepted, lambda: self._read(inbound))

    def _read(self, inbound: Inbound) -> None:
        """Read one record of a connection: the peer's name, or a piece of a message."""
        record = receive_record(inbound.socket, self._record)
        if not record:
            self._forget(inbound.socket)
            if inbound.peer:
                self._lost.append(inbound.peer)
        elif not inbound.peer:
            self._identify(inbound, bytes(record))
        else:
            self._take(inbound, record)

    def _identify(self, inbound: Inbound, name: bytes) -> None:
        """Take a connection as that of a role, or drop it if another process opened it."""
        peer = name.decode("utf-8", "replace")
        if is_at(self._directory.get(peer), inbound.process):
            inbound.peer = peer
        else:
            self.refused += 1
            self._forget(inbound.socket)

    def _take(self, inbound: Inbound, record: memoryview) -> None:
        """Take a record of a peer.

        Raises:
            ApplianceCorruptionError: The message is damaged, too large, or of another role.
        """
        try:
            if record[:1] == _MORE:
                inbound.add(bytes(record[1:]))
                if inbound.num_bytes > MOST_HEADER_BYTES + self._payload_limit:
                    raise DamagedMessageError("a message without end")
                return
            envelope = decode_message(inbound.taken(record[1:]), self._payload_limit)
            if not self._is_between(inbound.peer, envelope):
                raise DamagedMessageError(f"from {envelope.source} to {envelope.target}")
        except DamagedMessageError as error:
            self._forget(inbound.socket)
            raise damaged(self.name, inbound.peer, error) from error
        if len(self._inbox) >= MOST_WAITING:
            raise queue_full(self.name, inbound.peer)
        self._inbox.append(envelope)

    def _is_between(self, peer: str, envelope: Envelope) -> bool:
        """Return whether a message is of a role at the peer's address for a role at this one."""
        source, target = envelope.source, envelope.target
        if (source, target) == (peer, self.name):
            return True
        known = self._directory
        return known.get(source) == known[peer] and known.get(target) == self.address

    def _open(self, target: str) -> None:
        """Wait until a peer listens, connect to it, check it, and send this role's name."""
        if target not in self._directory:
            raise unknown_role(self.name, target)
        if target in self._lost:
            raise peer_gone(self.name, target)
        address = self._directory[target]
        deadline = time.monotonic() + self._start_timeout_s
        while (connection := try_connect(address.place)) is None:
            if time.monotonic() > deadline:
                raise unreachable(self.name, target, self._start_timeout_s)
            self._poll(_RETRY_S)
            if target in self._lost:
                raise peer_gone(self.name, target)
            if self.is_aborted():
                raise aborted(self.name)  # the peer has ended before it was called first
        if not is_at(address, listener := process_of(connection)):
            connection.close()
            raise not_authentic(self.name, target, listener)
        self._outbound[target] = connection
        self._watch(connection, lambda: self._notice_end(target))
        self._send_record(target, self.name.encode())

    def _notice_end(self, target: str) -> None:
        """Check a readable outbound connection: a peer never writes to it, so it has ended."""
        connection = self._outbound.get(target)
        if connection is not None and not is_open(connection):
            self._lose(target)

    def _lose(self, target: str) -> None:
        self._forget(self._outbound.pop(target))
        self._lost.append(target)

    def _send_record(self, target: str, record: bytes) -> None:
        """Send a record; while the peer's buffer is full, read incoming messages.

        So two roles that send to each other cannot block each other.
        """
        deadline = time.monotonic() + self._stall_timeout_s
        while target in self._outbound:
            connection = self._outbound[target]
            try:
                connection.send(record)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise stalled(self.name, self._stall_timeout_s) from None
                self._poll_until_writable(connection, deadline - time.monotonic())
            except ConnectionError:
                self._lose(target)
        raise peer_gone(self.name, target)

    def _poll_until_writable(self, connection: socket.socket, wait_s: float) -> None:
        callback = self._selector.get_key(connection).data
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        self._selector.modify(connection, both, callback)
        self._poll(wait_s)
        if connection.fileno() >= 0:
            self._selector.modify(connection, selectors.EVENT_READ, callback)
