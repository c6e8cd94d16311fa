"""Encode messages as bytes and decode them, for links between hosts; format: ``wire.proto``.

It is protobuf and not pickle, because bytes from a network port must not be able to run code.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, get_args

from swarmx.links.wire_pb2 import Header  # type: ignore[attr-defined]  # made at import
from wsc.core import messages
from wsc.core.messages import Envelope
from wsc.core.payload import Payload
from wsc.core.reduce_order import Subtree


def _field_name(kind: type) -> str:
    """Return the header field of a message class: ``WeightsReady`` -> ``weights_ready``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_KINDS: dict[str, type] = {_field_name(kind): kind for kind in get_args(messages.Message)}


def payload_of(envelope: Envelope) -> Payload | None:
    """Return the payload of a message, or None if its class has none."""
    return getattr(envelope.message, "payload", None)


def encode_header(envelope: Envelope) -> bytes:
    """Encode everything but the bytes of the payload."""
    message, payload = envelope.message, payload_of(envelope)
    values = {name: value for name, value in vars(message).items() if name != "payload"}
    return bytes(
        Header(
            source=envelope.source,
            target=envelope.target,
            payload_bytes=payload.num_bytes if payload else 0,
            **{_field_name(type(message)): _to_wire(values)},
        ).SerializeToString()
    )


def decode_header(encoded: bytes) -> tuple[Header, int]:
    """Decode a header; return it, and how many bytes of payload follow it."""
    header = Header.FromString(encoded)
    return header, header.payload_bytes


def envelope_of(header: Header, payload: Payload | None) -> Envelope:
    """Build the message of a header and its payload, if its class has one."""
    field = header.WhichOneof("message")
    kind, body = _KINDS[field], getattr(header, field)
    values = {
        part.name: payload if part.name == "payload" else _from_wire(part.name, body)
        for part in fields(kind)
    }
    return Envelope(header.source, header.target, kind(**values))


def _to_wire(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of a message for protobuf: nested messages become mappings."""
    if "subtree" in values:
        values["subtree"] = vars(values["subtree"])
    if "norms" in values:
        values["norms"] = [{"position": where, "norm": norm} for where, norm in values["norms"]]
    return values


def _from_wire(name: str, body: Any) -> Any:
    value = getattr(body, name)
    if name == "loss_scale":
        return value if body.HasField(name) else None
    if name == "subtree":
        return Subtree(value.lo, value.level)
    if name == "norms":
        return tuple((norm.position, norm.norm) for norm in value)
    if name == "label_weights":
        return tuple(value)
    return value
