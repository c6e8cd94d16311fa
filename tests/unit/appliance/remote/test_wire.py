"""Parcels come whole, and what is none is an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from appliance.remote import wire
from appliance.remote.wire import Parcel, received
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCorruptionError, ApplianceResourceExhausted


@given(some.lists(some.binary(max_size=40), max_size=5))
def test_parcel_arrives_in_frames_of_a_limited_size(buffers: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_FRAME_BYTES", 7)
        frames = list(Parcel({"name": "w"}, buffers).frames())
    assert all(len(frame) <= 7 for frame in frames[1:])
    parcel = received(frames)
    assert parcel.head == {"name": "w"}
    assert [bytes(buffer) for buffer in parcel.buffers] == buffers


@given(some.lists(some.binary(max_size=40), max_size=4))
def test_any_other_frames_are_an_error(frames: list[bytes]) -> None:
    with raises(ApplianceCorruptionError, "parcel-damaged"):
        received(frames)


@pytest.mark.parametrize("sizes", [[-1], ["1"], None, [True], [3]])
def test_sizes_must_be_those_of_what_follows(sizes: object) -> None:
    with raises(ApplianceCorruptionError, "parcel-damaged"):
        received([json.dumps({"sizes": sizes}).encode(), b"ab"])


def test_parcel_has_a_limit_before_memory_is_taken() -> None:
    with raises(ApplianceResourceExhausted, "parcel-too-large"):
        received([json.dumps({"sizes": [wire.MOST_BYTES, 1]}).encode()])
