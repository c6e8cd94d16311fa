"""A message as one run of bytes, on the link between processes of one host.

4 bytes: length of the header; the header of ``wire.proto``; the bytes of the payload, unless
that is in shared memory
"""

from __future__ import annotations

import struct

import torch

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

_LENGTH = struct.Struct("<I")


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
