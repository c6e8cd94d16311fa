"""Messages between processes of one host, over sockets in Linux' abstract name space (unix(7)).

Such a name is no file: it is gone with its socket. The sockets are SOCK_SEQPACKET: ordered and
reliable like streams, with record boundaries. Each role listens on one, and opens one more to
every role it sends to, on which it first says its name; so a connection carries one direction,
and its end tells both sides that the other is gone. Everything happens inside ``send`` and
``receive``; there is no thread.

A record is one byte, whether the message goes on in the next record, and a piece of the pickled
envelope. Nearly all messages take one record. Only processes of the same user are listened to,
for a pickle is code.
"""

from __future__ import annotations

import os
import pickle
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from swarmx.links.endpoint import peer_gone, stalled, unknown_role, unreachable
from wsc.core.errors import ClusterJobInitError
from wsc.core.messages import Envelope
from wsc.core.units import KIB, MIB

_MORE, _LAST = b"+", b"."
_PIECE_BYTES = 32 * KIB
_BUFFER_BYTES = 4 * MIB  # the kernel cuts it to net.core.wmem_max
_RETRY_S = 0.002
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED


@dataclass
class _Inbound:
    """A connection on which a peer sends to us."""

    socket: socket.socket
    peer: str = ""
    pieces: list[bytes] = field(default_factory=list)


class SocketEndpoint:
    """One role's mailbox on this host; for one thread."""

    def __init__(
        self, name: str, session: str, start_timeout_s: float, stall_timeout_s: float
    ) -> None:
        self.name = name
        self.address = f"waferstream/{session}/{name}"
        self._start_timeout_s = start_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._directory: dict[str, str] = {}
        self._outbound: dict[str, socket.socket] = {}
        self._lost: list[str] = []
        self._inbox: deque[Envelope] = deque()
        self._record = memoryview(bytearray(1 + _PIECE_BYTES))
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(self.address)
        self._watch(self._listener, self._accept)

    def connect(self, directory: Mapping[str, str]) -> None:
        """Learn the addresses of other roles; a connection is opened at the first ``send``."""
        self._directory.update(directory)

    def send(self, envelope: Envelope) -> None:
        """Hand a message to the kernel.

        Raises ApplianceRuntimeServerError when the target is gone or never listens, and
        ApplianceDeadlockError when it has not read for ``stall_timeout_s``.
        """
        target = envelope.target
        if target not in self._outbound:
            self._open(target)
        message = pickle.dumps(envelope, pickle.HIGHEST_PROTOCOL)
        last_start = (len(message) - 1) // _PIECE_BYTES * _PIECE_BYTES
        for start in range(0, last_start, _PIECE_BYTES):
            self._send_record(target, _MORE + message[start : start + _PIECE_BYTES])
        self._send_record(target, _LAST + message[last_start:])

    def receive(self, timeout_s: float) -> Envelope:
        """The next message; what a peer sent before it went away still arrives."""
        deadline = time.monotonic() + timeout_s
        while not self._inbox:
            wait_s = 0.0 if self._lost else max(0.0, deadline - time.monotonic())
            if not self._turn(wait_s):
                raise (
                    peer_gone(self.name, self._lost[0])
                    if self._lost
                    else stalled(self.name, timeout_s)
                )
        return self._inbox.popleft()

    def close(self) -> None:
        """Close every socket; peers notice. Idempotent."""
        for key in list((self._selector.get_map() or {}).values()):
            key.fileobj.close()  # type: ignore[union-attr] # always a socket
        self._selector.close()

    def _turn(self, wait_s: float) -> bool:
        """Attend to every socket that is ready; False if none was within ``wait_s``."""
        ready = self._selector.select(wait_s)
        for key, _ in ready:
            key.data()
        return bool(ready)

    def _watch(self, watched: socket.socket, attend: Callable[[], None]) -> None:
        self._selector.register(watched, selectors.EVENT_READ, attend)

    def _forget(self, watched: socket.socket) -> None:
        self._selector.unregister(watched)
        watched.close()

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        accepted.setblocking(False)
        if _user_of(accepted) != os.getuid():
            accepted.close()
            return
        inbound = _Inbound(accepted)
        self._watch(accepted, lambda: self._read(inbound))

    def _read(self, inbound: _Inbound) -> None:
        """Take one record off a connection: the peer's name, or a piece of a message."""
        record = _receive_record(inbound.socket, self._record)
        if not record:
            self._forget(inbound.socket)
            if inbound.peer:
                self._lost.append(inbound.peer)
        elif not inbound.peer:
            inbound.peer = str(record, "utf-8")
        elif record[:1] == _MORE:
            inbound.pieces.append(bytes(record[1:]))
        elif inbound.pieces:
            message = b"".join([*inbound.pieces, record[1:]])
            inbound.pieces.clear()
            self._inbox.append(pickle.loads(message))
        else:
            self._inbox.append(pickle.loads(record[1:]))

    def _open(self, target: str) -> None:
        """Connect to a peer, waiting until it listens, and introduce ourselves."""
        if target not in self._directory:
            raise unknown_role(self.name, target)
        if target in self._lost:
            raise peer_gone(self.name, target)
        deadline = time.monotonic() + self._start_timeout_s
        while (connection := _try_connect(self._directory[target])) is None:
            if time.monotonic() > deadline:
                raise unreachable(self.name, target, self._start_timeout_s)
            self._turn(_RETRY_S)
        self._outbound[target] = connection
        self._watch(connection, lambda: self._notice_end(target))
        self._send_record(target, self.name.encode())

    def _notice_end(self, target: str) -> None:
        """A peer never writes on our connection to it; if it can be read, that is its end."""
        connection = self._outbound.get(target)
        if connection is not None and not _is_open(connection):
            self._lose(target)

    def _lose(self, target: str) -> None:
        self._forget(self._outbound.pop(target))
        self._lost.append(target)

    def _send_record(self, target: str, record: bytes) -> None:
        """Send, and while the peer's buffer is full read what comes in.

        Two roles that send to each other thus cannot wait for each other.
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
                self._turn_until_writable(connection, deadline - time.monotonic())
            except ConnectionError:
                self._lose(target)
        raise peer_gone(self.name, target)

    def _turn_until_writable(self, connection: socket.socket, wait_s: float) -> None:
        attend = self._selector.get_key(connection).data
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        self._selector.modify(connection, both, attend)
        self._turn(wait_s)
        if connection.fileno() >= 0:
            self._selector.modify(connection, selectors.EVENT_READ, attend)


def _listen(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"\0{address}")
    except OSError as error:
        listener.close()
        raise ClusterJobInitError(
            "a role cannot listen",
            code="address-unavailable",
            where=address,
            value=error,
            rule="one cluster per session name",
        ) from error
    listener.setblocking(False)
    listener.listen(socket.SOMAXCONN)
    return listener


def _try_connect(address: str) -> socket.socket | None:
    """A connection, or None when nobody listens there yet, or its queue is full just now."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    connection.setblocking(False)
    try:
        connection.connect(f"\0{address}")
    except (ConnectionRefusedError, BlockingIOError):
        connection.close()
        return None
    return connection


def _receive_record(connection: socket.socket, record: memoryview) -> memoryview:
    """The next record, empty at the end of the connection."""
    try:
        return record[: connection.recv_into(record)]
    except ConnectionError:
        return record[:0]


def _is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def _user_of(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
