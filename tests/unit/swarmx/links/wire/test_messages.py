"""Messages as protobuf: every class survives, and the generated code matches wire.proto."""

import contextlib
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from swarmx.links.memory import MemoryArena, SharedArena, place_of
from swarmx.links.wire import messages, wire_pb2
from swarmx.links.wire.messages import (
    DamagedMessageError,
    decode_header,
    encode_header,
    envelope_of,
    shared_payload_of,
)
from swarmx.links.wire.wire_pb2 import Header  # type: ignore[attr-defined]  # made at import
from tests.support.errors import raises
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.messages.messages import (
    Abort,
    BatchReady,
    BatchReleased,
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    NormPartial,
    NormTotal,
    StashReady,
    StashReleased,
    StashWanted,
    StepDone,
    Tally,
    UpdateReady,
    UpdateReleased,
    UpdateSkipped,
    Vote,
    WeightsReady,
    WeightsReleased,
)
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.messages.watch import Finding

SLAB = MemoryArena().allocate(48)
MESSAGES = (
    WeightsReady(1, 2, 3, SLAB),
    WeightsReady(1, 2, 3, SLAB, loss_scale=2.0**-14),
    WeightsReleased(2**40, 0, 3),
    GradientReady(1, 0, 3, Subtree(8, 3), SLAB),
    GradientReleased(0, 0, 0, Subtree(0, 0)),
    BatchReady(1, 5, SLAB),
    BatchReady(1, 5, SLAB, (0.1, 1.0)),
    BatchReleased(1, 5),
    NormPartial(1, 2, ((0, 0.1), (7, 1e300))),
    NormPartial(1, 2, (), is_finite=False),
    NormTotal(1, float("inf")),
    NormTotal(1, 0.0, is_finite=False),
    StashReady(1, 5, 2, SLAB),
    StashWanted(1, 5, 2),
    StashReleased(1, 5, 2),
    UpdateReady(7, 3, 6, SLAB),
    UpdateSkipped(7, 3),
    UpdateReleased(7, 3),
    StepDone(7),
    StepDone(7, ((4, (0.1, None)),), (Finding(7, 1, 4, 2, "layer", "a", "csx-1"),)),
    StepDone(7, votes=(Vote(0, 1, b"\0\xff"), Vote(2, 3, b""))),
    Abort(1),
    Tally(0, 7),
)


def test_every_message_class_is_covered() -> None:
    """A new message class must be added here and to wire.proto."""
    assert {type(message) for message in MESSAGES} == set(get_args(Message))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_survives_encoding(message: Message) -> None:
    """A decoded message equals the encoded one, and its header has the size of the payload."""
    envelope = Envelope("wgt-0", "csx-1", message, 1 << 40)
    header, payload_bytes = decode_header(encode_header(envelope))
    payload = messages.payload_of(envelope)
    assert payload_bytes == (payload.num_bytes if payload else None)
    assert envelope_of(header, payload) == envelope


def test_tensors_among_results_survive_encoding() -> None:
    """Of any dtype and shape, bit for bit; their bytes are the payload."""
    tensors = [
        torch.tensor([float("nan"), 1e-30]),
        torch.tensor(True),
        torch.empty(0, 3, dtype=torch.bfloat16),
        torch.arange(6).view(2, 3).t(),
    ]
    sent = StepDone(1, ((0, (0.5, *tensors[:2])), (3, (None, *tensors[2:]))))
    envelope = Envelope("csx-0", "wgt-0", sent)
    header, payload_bytes = decode_header(encode_header(envelope))
    payload = messages.payload_of(envelope)
    assert payload is not None
    assert payload_bytes == payload.num_bytes == 8 + 1 + 48
    received = envelope_of(header, payload).message
    assert isinstance(received, StepDone)
    (_, first), (index, second) = received.results
    assert (index, first[0], second[0]) == (3, 0.5, None)
    for left, right in zip(tensors, (*first[1:], *second[1:]), strict=True):
        assert isinstance(right, torch.Tensor)
        assert left.dtype == right.dtype
        assert torch.equal(left.nan_to_num(), right.nan_to_num())


def test_generated_wire_code_is_current(tmp_path: Path) -> None:
    """wire_pb2.py equals the compiler's output for wire.proto."""
    folder = Path(wire_pb2.__file__).parent
    command = ["protoc", f"-I{folder}", f"--python_out={tmp_path}", str(folder / "wire.proto")]
    assert protoc.main(command) == 0
    assert (tmp_path / "wire_pb2.py").read_text() == (folder / "wire_pb2.py").read_text()


def test_header_excludes_the_payload() -> None:
    """The header of a large payload is small."""
    slab = MemoryArena().allocate(1 << 20)
    slab.view(torch.uint8).zero_()
    assert len(encode_header(Envelope("a", "b", WeightsReady(1, 1, 1, slab)))) < 64


def test_shared_payload_is_sent_as_its_place() -> None:
    """A payload in shared memory travels as its block and its offset."""
    slab = SharedArena().allocate(48)
    envelope = Envelope("wgt-0", "csx-1", WeightsReady(1, 2, 3, slab))
    header, _ = decode_header(encode_header(envelope, place_of(slab)))
    assert shared_payload_of(header) == slab.place


def test_header_beyond_the_limit_is_refused_by_its_sender() -> None:
    """A message that no receiver would take is an error where it is sent."""
    norms = tuple((2**40 + position, 0.1) for position in range(70_000))
    with raises(ApplianceResourceExhausted, "message-too-large"):
        encode_header(Envelope("wgt-0", "wgt-1", NormPartial(1, 2, norms)))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"weights_released": {}, "payload_bytes": 1},
        {"gradient_released": {"subtree": {"level": 2**30}}},
        {"gradient_released": {"subtree": {"level": -1}}},
        {"gradient_released": {"subtree": {"lo": -8}}},
        {"step_done": {"findings": [{"origin": 4}]}},
        {"step_done": {"results": [{"values": [{"tensor": {"dtype": "object"}}]}]}},
        {"step_done": {"results": [{"values": [{"tensor": {"dtype": "bool", "shape": [-1]}}]}]}},
        {"step_done": {"results": [{"values": [{"tensor": {"dtype": "bool", "shape": [2]}}]}]}},
    ],
)
def test_header_that_is_no_message_is_damaged(fields: dict[str, Any]) -> None:
    """A well-formed header must also be one of our messages."""
    with pytest.raises(DamagedMessageError):
        envelope_of(decode_header(Header(**fields).SerializeToString())[0], None)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_damaged(encoded: bytes) -> None:
    """No bytes lead to another error."""
    with contextlib.suppress(DamagedMessageError):
        envelope_of(decode_header(encoded)[0], None)
