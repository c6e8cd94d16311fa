"""Connections of the Unix link: who is at the other end, and what has arrived of a message.

A message is one run of bytes: 4 bytes, the length of the header; the header of ``wire.proto``; the
bytes of the payload, unless that is in shared memory.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from swarmx.links.endpoint import Address, cannot_listen
from swarmx.links.memory import MemorySlab, place_of
from swarmx.links.wire.messages import (
    DamagedMessageError,
    decode_header,
    encode_header,
    envelope_of,
    payload_of,
    shared_payload_of,
)
from waferstream.core.messages.messages import Envelope
from waferstream.core.units import MIB

_BUFFER_BYTES = 4 * MIB  # the kernel cuts it to net.core.wmem_max
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED

_LENGTH = struct.Struct("<I")


class Process(NamedTuple):
    """The process at the other end of a connection."""

    pid: int
    user: int


@dataclass
class Inbound:
    """A connection on which a peer sends to this role."""

    socket: socket.socket
    process: Process
    peer: str = ""
    pieces: list[bytes] = field(default_factory=list)
    num_bytes: int = 0
    """Size of the pieces."""

    def add(self, piece: bytes) -> None:
        """Keep a piece of an unfinished message."""
        self.pieces.append(piece)
        self.num_bytes += len(piece)

    def taken(self, last: memoryview) -> memoryview:
        """Return a whole message, given its last piece."""
        if not self.pieces:
            return last
        message = b"".join([*self.pieces, last])
        self.pieces.clear()
        self.num_bytes = 0
        return memoryview(message)


def listen(address: str) -> socket.socket:
    """Return a socket that listens at an abstract name.

    Raises:
        ClusterJobInitError: The name is taken.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"\0{address}")
    except OSError as error:
        listener.close()
        raise cannot_listen(address, error, "one cluster per session name") from error
    listener.setblocking(False)
    listener.listen(socket.SOMAXCONN)
    return listener


def try_connect(address: str) -> socket.socket | None:
    """Return a connection, or None if no role listens there yet or its queue is full."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    connection.setblocking(False)
    try:
        connection.connect(f"\0{address}")
    except (ConnectionRefusedError, BlockingIOError):
        connection.close()
        return None
    return connection


def receive_record(connection: socket.socket, record: memoryview) -> memoryview:
    """Return the next record; it is empty at the end of the connection."""
    try:
        return record[: connection.recv_into(record)]
    except ConnectionError:
        return record[:0]


def is_open(connection: socket.socket) -> bool:
    """Return whether the other end of a connection, which never writes, is still open."""
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def process_of(connection: socket.socket) -> Process:
    """Return the process that opened a connection, or that listens at its other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(credentials)
    return Process(pid, user)


def is_at(address: Address | None, process: Process) -> bool:
    """Return whether a process is the one that the directory names, and of this user."""
    return address is not None and (address.identity, os.getuid()) == (
        str(process.pid),
        process.user,
    )


def encode_message(envelope: Envelope) -> bytes:
    """Return a message as the bytes that cross a socket."""
    payload = payload_of(envelope)
    place = place_of(payload)
    header = encode_header(envelope, place)
    content = b"" if payload is None or place else payload.view(torch.uint8).numpy().tobytes()
    return b"".join((_LENGTH.pack(len(header)), header, content))


def decode_message(message: memoryview, payload_limit: int) -> Envelope:
    """Return the message of some bytes.

    Raises:
        DamagedMessageError: They are no message, or its payload exceeds the limit.
    """
    if len(message) < _LENGTH.size:
        raise DamagedMessageError("a message without a header")
    (length,) = _LENGTH.unpack(message[: _LENGTH.size])
    header, payload_bytes = decode_header(message[_LENGTH.size :][:length])
    content = message[_LENGTH.size + length :]
    if payload_bytes is None:
        return envelope_of(header, None)
    if payload_bytes > payload_limit:
        raise DamagedMessageError(f"a payload of {payload_bytes} bytes")
    shared = shared_payload_of(header)
    if shared is None and len(content) != payload_bytes:
        raise DamagedMessageError(f"{len(content)} of {payload_bytes} bytes of a payload")
    return envelope_of(header, shared or _copied(content))


def _copied(content: memoryview) -> MemorySlab:
    slab = MemorySlab(len(content))
    slab.view(torch.uint8).numpy().data[:] = content
    return slab
