"""Messages on a TCP connection, one frame after the other.

    frame:  4 bytes: length of the header; 4 bytes: number of the frame on its connection
            the header of ``wire.proto``
            the bytes of the payload, as many as the header states

A payload is read from the connection straight into its slab, which is held until the role gives
its credit.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from itertools import count

import torch

from swarmx.links.endpoint import PAYLOAD_LIMIT_BYTES
from swarmx.links.memory import MemorySlab
from swarmx.links.wire.messages import (
    MOST_HEADER_BYTES,
    DamagedMessageError,
    decode_header,
    encode_header,
    envelope_of,
    payload_of,
)
from swarmx.links.wire.wire_pb2 import Header  # type: ignore[attr-defined]  # made at import
from waferstream.core.messages.messages import Credit, Envelope, credit_of
from waferstream.core.messages.payload import Arena, Payload, Slab
from waferstream.core.units import KIB, MIB

_PREFIX = struct.Struct("<II")
_NUMBERS = 1 << 32  # numbers of frames wrap around at 32 bits
_BUFFER_BYTES = 64 * KIB
_PIECE_BYTES = 1 * MIB  # the peer takes one within the stall time-out

CREDITED = frozenset(
    {"weights_ready", "gradient_ready", "batch_ready", "stash_ready", "update_ready"}
)
"""Header fields of the messages that have a credit; see ``credit_of``."""


class EndOfStreamError(ConnectionError):
    """The peer has closed the connection, perhaps in the middle of a frame."""


class StalledFrameError(TimeoutError):
    """The rest of a frame does not arrive."""


def write_record(connection: socket.socket, record: bytes) -> None:
    """Write a record that is no message: ``Hello`` or ``Welcome``."""
    write_all(connection, _PREFIX.pack(len(record), 0) + record)


def write_all(connection: socket.socket, content: bytes | bytearray | memoryview) -> None:
    """Write all bytes, each piece within the time-out of the connection."""
    rest = memoryview(content)
    while rest:
        rest = rest[connection.send(rest[:_PIECE_BYTES]) :]


class FrameWriter:
    """The writing side of a connection: messages as frames."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._numbers = count(1)

    def write(self, envelopes: Iterable[Envelope]) -> None:
        """Write messages; those without payload share a write.

        Raises:
            OSError: The connection has ended, or the peer does not read.
        """
        waiting = bytearray()
        for envelope in envelopes:
            payload = payload_of(envelope)
            # Viewed before the header is sent: a receiver frees an empty payload at the header.
            content = b"" if payload is None else payload.view(torch.uint8).numpy().data
            header = encode_header(envelope)
            waiting += _PREFIX.pack(len(header), next(self._numbers) % _NUMBERS) + header
            if len(content) or len(waiting) > _BUFFER_BYTES:
                write_all(self._connection, waiting)
                waiting.clear()
                write_all(self._connection, content)
        write_all(self._connection, waiting)


class FrameReader:
    """The reading side of a connection: records and messages."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._waiting = self._buffer[:0]  # bytes that have arrived and are not read
        self._numbers = count(1)

    def record(self, most_bytes: int) -> bytes:
        """Return a record that is no message.

        Raises:
            OSError: The connection ends, or nothing arrives within its time-out.
            DamagedMessageError: The record is too long.
        """
        length, _ = _PREFIX.unpack(self._take(_PREFIX.size))
        return bytes(self._take(_checked(length, most_bytes)))

    def message(self, slabs: ReceivedSlabs, check: Callable[[Header], None]) -> Envelope:
        """Wait for the next message, and return it.

        Args:
            slabs: Memory for its payload, and the limit of its size.
            check: Raises DamagedMessageError for headers that the receiver does not accept.

        Raises:
            EndOfStreamError: The peer has closed the connection.
            StalledFrameError: The message begins, and does not go on.
            DamagedMessageError: The bytes are no message, or not the next one.
        """
        self._wait()
        try:
            return self._message(slabs, check)
        except TimeoutError as error:
            if error.errno is not None:  # the kernel has given up the connection
                raise
            raise StalledFrameError(str(error)) from error

    def _wait(self) -> None:
        """Wait until something arrives; between two messages, silence is no failure."""
        while not len(self._waiting):
            try:
                self._fill()
            except TimeoutError:
                continue

    def _message(self, slabs: ReceivedSlabs, check: Callable[[Header], None]) -> Envelope:
        length, number = _PREFIX.unpack(self._take(_PREFIX.size))
        if number != (due := next(self._numbers) % _NUMBERS):
            raise DamagedMessageError(f"frame {number} in place of frame {due}")
        header, num_bytes = decode_header(self._take(_checked(length, MOST_HEADER_BYTES)))
        check(header)
        if num_bytes is None:
            return envelope_of(header, None)
        if num_bytes > slabs.limit_bytes:
            raise DamagedMessageError(f"a payload of {num_bytes} bytes")
        return self._with_payload(header, num_bytes, slabs)

    def _with_payload(self, header: Header, num_bytes: int, slabs: ReceivedSlabs) -> Envelope:
        """Read the payload of a header into a slab, which the receiver's credit frees."""
        is_credited = header.WhichOneof("message") in CREDITED
        slab = slabs.allocate(num_bytes) if is_credited else MemorySlab(num_bytes)
        try:
            self._read_into(slab)
            envelope = envelope_of(header, slab)
            if is_credited:
                slabs.hold(envelope, slab)
        except BaseException:
            slab.free()
            raise
        return envelope

    def _read_into(self, payload: Payload) -> None:
        content = payload.view(torch.uint8).numpy().data
        filled = min(len(self._waiting), len(content))
        content[:filled] = self._waiting[:filled]
        self._waiting = self._waiting[filled:]
        while filled < len(content):
            filled += self._receive(content[filled:])

    def _take(self, num_bytes: int) -> memoryview | bytearray:
        """Return the next bytes, which are valid until the next call."""
        if num_bytes > _BUFFER_BYTES:
            taken = bytearray(num_bytes)
            filled = len(self._waiting)
            taken[:filled] = self._waiting
            self._waiting = self._buffer[:0]
            while filled < num_bytes:
                filled += self._receive(memoryview(taken)[filled:])
            return taken
        while len(self._waiting) < num_bytes:
            self._fill()
        taken_view, self._waiting = self._waiting[:num_bytes], self._waiting[num_bytes:]
        return taken_view

    def _fill(self) -> None:
        """Receive more into the buffer, behind what waits there."""
        num_waiting = len(self._waiting)
        self._buffer[:num_waiting] = self._waiting.tobytes()
        received = self._receive(self._buffer[num_waiting:])
        self._waiting = self._buffer[: num_waiting + received]

    def _receive(self, room: memoryview) -> int:
        received = self._connection.recv_into(room)
        if not received:
            raise EndOfStreamError("the connection has ended")
        return received


def _checked(length: int, most_bytes: int) -> int:
    """Return the length of a record; DamagedMessageError if it is beyond its limit."""
    if length > most_bytes:
        raise DamagedMessageError(f"a header of {length} bytes")
    return length


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
