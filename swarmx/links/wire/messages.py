"""Encode messages as bytes and decode them; format: ``wire.proto``.

It is protobuf and not pickle, because what a link receives must not be able to run code. A header
that is not one of ours ends in a DamagedMessageError, whatever its bytes. Results of a step have
numbers in the header, and the bytes of tensors behind it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from math import prod
from typing import Any, get_args

import torch
from google.protobuf.message import DecodeError

from swarmx.links.memory import Block, MemorySlab, SharedPayload
from swarmx.links.wire.wire_pb2 import Header  # type: ignore[attr-defined]  # made at import
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.messages import messages
from waferstream.core.messages.messages import Envelope, StepDone, Vote
from waferstream.core.messages.payload import Payload
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.messages.watch import ORIGINS, Finding
from waferstream.core.units import MIB
from waferstream.numerics.precision import DTYPES, NAMES

MOST_HEADER_BYTES = 1 * MIB
"""Limit of a header: the norms of about 50,000 parameters."""

PROTOCOL_VERSION = 5
"""Changes with ``wire.proto`` and with what the bytes on a connection mean."""

_DEEPEST_LEVEL = 62  # micro-batch indices are 64-bit integers on the wire

Results = tuple[tuple[int, tuple[float | torch.Tensor | None, ...]], ...]
"""Index and results of each micro-batch, as StepDone has them."""


class DamagedMessageError(Exception):
    """Bytes that are no message of ours; the text says why."""


def _field_name(kind: type) -> str:
    """Return the header field of a message class: ``WeightsReady`` -> ``weights_ready``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_KINDS: dict[str, type] = {_field_name(kind): kind for kind in get_args(messages.Message)}
_PARTS = {name: tuple(part.name for part in fields(kind)) for name, kind in _KINDS.items()}
"""The fields of each message class."""


def payload_of(envelope: Envelope) -> Payload | None:
    """Return the payload of a message, or None if it has none; tensors among results are one."""
    if isinstance(envelope.message, StepDone):
        return results_payload(envelope.message.results)
    return getattr(envelope.message, "payload", None)


def stamped(envelope: Envelope) -> Envelope:
    """Return a message with the time of day, as it leaves for another host."""
    return replace(envelope, sent_ns=time.time_ns())


def encode_header(envelope: Envelope, shared: SharedPayload | None = None) -> bytes:
    """Encode everything but the bytes of the payload.

    Args:
        envelope: The message.
        shared: Where the receiver finds the payload, if that is in shared memory.

    Raises:
        ApplianceResourceExhausted: The header exceeds MOST_HEADER_BYTES.
    """
    message, payload = envelope.message, payload_of(envelope)
    values = {name: value for name, value in vars(message).items() if name != "payload"}
    header = Header(
        source=envelope.source,
        target=envelope.target,
        number=envelope.number,
        sent_ns=envelope.sent_ns,
        payload_bytes=payload.num_bytes if payload else 0,
        **{_field_name(type(message)): _to_wire(values)},
    )
    if shared is not None:
        _write_place(header.shared_memory, shared)
    encoded = bytes(header.SerializeToString())
    if len(encoded) > MOST_HEADER_BYTES:
        raise ApplianceResourceExhausted(
            f"a {type(message).__name__} is too large for a link",
            code="message-too-large",
            where=envelope.source,
            value=f"{len(encoded)} bytes",
            rule=f"a message without its payload has at most {MOST_HEADER_BYTES} bytes",
        )
    return encoded


def decode_header(encoded: bytes | bytearray | memoryview) -> tuple[Header, int | None]:
    """Decode a header; return it, and the size of the payload if its message has one.

    Raises:
        DamagedMessageError: The bytes are no header.
    """
    if len(encoded) > MOST_HEADER_BYTES:
        raise DamagedMessageError(f"a header of {len(encoded)} bytes")
    try:
        header = Header.FromString(bytes(encoded))
    except DecodeError as error:
        raise DamagedMessageError(str(error)) from error
    field = header.WhichOneof("message")
    if field is None:
        raise DamagedMessageError("a header without a message")
    if "payload" in _PARTS[field] or (field == "step_done" and header.payload_bytes):
        return header, header.payload_bytes
    if header.payload_bytes:
        raise DamagedMessageError(f"a {field} with a payload")
    return header, None


def shared_payload_of(header: Header) -> SharedPayload | None:
    """Return where a payload is in shared memory, or None if its bytes follow the header."""
    if not header.HasField("shared_memory"):
        return None
    place = header.shared_memory
    block = Block(place.pid, place.descriptor, place.inode)
    return SharedPayload(block, place.offset, header.payload_bytes)


def envelope_of(header: Header, payload: Payload | None) -> Envelope:
    """Build the message of a header and its payload, if its class has one.

    Raises:
        DamagedMessageError: The fields are no message.
    """
    field = header.WhichOneof("message")
    body = getattr(header, field)
    values = {
        name: payload if name == "payload" else _from_wire(name, body) for name in _PARTS[field]
    }
    if field == "step_done":
        values["results"] = _results(body, payload)
    message = _KINDS[field](**values)
    return Envelope(header.source, header.target, message, header.number, header.sent_ns)


def _write_place(field: Any, shared: SharedPayload) -> None:
    field.pid, field.descriptor, field.inode = shared.block
    field.offset = shared.offset


def _to_wire(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of a message for protobuf: nested messages become mappings."""
    if "subtree" in values:
        values["subtree"] = vars(values["subtree"])
    if "norms" in values:
        values["norms"] = [{"position": where, "norm": norm} for where, norm in values["norms"]]
    if "results" in values:
        values["results"] = results_to_wire(values["results"])
        for repeated in ("findings", "votes"):
            values[repeated] = [each._asdict() for each in values[repeated]]
    return values


def _from_wire(name: str, body: Any) -> Any:
    value = getattr(body, name)
    if name == "loss_scale":
        return value if body.HasField(name) else None
    if name == "subtree":
        return _subtree(value)
    if name == "norms":
        return tuple((norm.position, norm.norm) for norm in value)
    if name == "label_weights":
        return tuple(value)
    if name in ("findings", "votes"):
        return tuple(map(_finding if name == "findings" else _vote, value))
    return value


def _results(body: Any, payload: Payload | None) -> Results:
    try:
        return results_from_wire(body.results, payload)
    except (ValueError, RuntimeError) as error:  # torch refuses sizes beyond 64 bits
        raise DamagedMessageError(str(error)) from error


def _finding(value: Any) -> Finding:
    if not 0 <= value.origin < len(ORIGINS):
        raise DamagedMessageError(f"a finding of origin {value.origin}")
    return Finding(*(getattr(value, part) for part in Finding._fields))


def _vote(value: Any) -> Vote:
    return Vote(value.round, value.node, value.digest)


def _subtree(value: Any) -> Subtree:
    """Return a subtree; a hostile level would ask for 2**level micro-batches."""
    if value.lo < 0 or not 0 <= value.level <= _DEEPEST_LEVEL:
        raise DamagedMessageError(f"a subtree at {value.lo} of level {value.level}")
    return Subtree(value.lo, value.level)


def results_payload(results: Results) -> Payload | None:
    """Return a payload of all tensors among results, one after the other; None without any."""
    tensors = [
        value for _, values in results for value in values if isinstance(value, torch.Tensor)
    ]
    if not tensors:
        return None
    flat = torch.cat([t.detach().contiguous().view(-1).view(torch.uint8) for t in tensors])
    payload = MemorySlab(flat.numel())
    payload.view(torch.uint8).copy_(flat)
    return payload


def results_to_wire(results: Results) -> list[dict[str, Any]]:
    """Return the header's part of results."""
    return [
        {"micro_batch": index, "values": [_value_to_wire(value) for value in values]}
        for index, values in results
    ]


def results_from_wire(encoded: Sequence[Any], payload: Payload | None) -> Results:
    """Return the results of a header and its payload.

    Raises:
        ValueError: The payload is not that of the tensors.
    """
    content = torch.empty(0, dtype=torch.uint8) if payload is None else payload.view(torch.uint8)
    values = (value.tensor for one in encoded for value in one.values if value.HasField("tensor"))
    tensors = iter(_tensors(list(values), content))
    return tuple(
        (one.micro_batch, tuple(_value_from_wire(value, tensors) for value in one.values))
        for one in encoded
    )


def _value_to_wire(value: float | torch.Tensor | None) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, torch.Tensor):
        return {"tensor": {"dtype": NAMES[value.dtype], "shape": list(value.shape)}}
    return {"number": value}


def _value_from_wire(value: Any, tensors: Iterator[torch.Tensor]) -> float | torch.Tensor | None:
    match value.WhichOneof("kind"):
        case "number":
            return float(value.number)
        case "tensor":
            return next(tensors)
    return None


def _tensors(types: Sequence[Any], content: torch.Tensor) -> list[torch.Tensor]:
    """Return copies of the tensors that a header announces; ValueError if it does not match."""
    sizes = []
    for announced in types:
        if announced.dtype not in DTYPES or any(size < 0 for size in announced.shape):
            raise ValueError(f"a tensor of {announced.dtype} {list(announced.shape)}")
        sizes.append(prod(announced.shape) * DTYPES[announced.dtype].itemsize)
    if sum(sizes) != content.numel():
        raise ValueError(f"{content.numel()} bytes for tensors of {sum(sizes)}")
    tensors = []
    for announced, piece in zip(types, content.split(sizes), strict=True):
        tensor = torch.empty(tuple(announced.shape), dtype=DTYPES[announced.dtype])
        # A copy: tensors of several dtypes lie behind one another without alignment.
        tensor.view(-1).view(torch.uint8).copy_(piece)
        tensors.append(tensor)
    return tensors
