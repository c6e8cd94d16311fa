"""SRAM of a wafer for code, data and the buffers of streams."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.errors import raises
from tests.support.programs.small_programs import program, segment
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.units import format_bytes
from waferstream.machine.hardware import CS2, CS3, override
from waferstream.machine.sram.space import Buffers, buffer_bytes, code_bytes, data_bytes, link_bytes


def chain(first: int, last: int) -> Program:
    """Return two layers forward and backward, with weights of so many elements."""
    segments = (
        segment(0, layer="first", weights=("first",)),
        segment(1, layer="last", weights=("last",)),
        segment(2, layer="loss"),
        segment(3, "backward", "last", weights=("last",), gradients=("last",)),
        segment(4, "backward", "first", gradients=("first",)),
    )
    parameters = (TensorSpec("first", (first,), "float32"), TensorSpec("last", (last,), "float32"))
    return replace(program(segments=segments), parameters=parameters, stream_dtype="bfloat16")


def test_data_bytes_are_the_sram_without_code() -> None:
    """A CS-2: 48 KiB less 4,176 B of each of 850,000 PEs."""
    assert code_bytes(CS2) == 850_000 * 4176
    assert data_bytes(CS2) == 850_000 * (48 * 1024 - 4176)
    assert data_bytes(CS3) > data_bytes(CS2)


def test_data_bytes_need_more_sram_than_code() -> None:
    """A wafer with SRAM for code alone is refused, with the key to change."""
    assert data_bytes(override(CS2, sram_bytes=code_bytes(CS2) + 1)) == 1
    for sram_bytes in (1, code_bytes(CS2)):
        with raises(ConfigError, "no-sram-for-data") as caught:
            data_bytes(override(CS2, sram_bytes=sram_bytes))
        assert caught.value.where == "machine.system.sram_bytes"
        assert format_bytes(code_bytes(CS2)) in str(caught.value.rule)


def test_link_bytes_are_those_of_the_segment_overhead() -> None:
    """1.2 Tb/s for a millisecond."""
    wafer = override(CS2, io_bandwidth_bytes_per_s=150 * 10**9, segment_overhead_ps=10**9)
    assert link_bytes(wafer) == 150 * 10**6


def test_buffers_are_no_larger_than_their_streams() -> None:
    """Weights of two bytes, its own or those that arrive for the next, and gradients of four."""
    assert buffer_bytes(chain(100, 300), CS2) == (600, 600, 600, 600 + 1200, 400)


def test_buffers_stream_again_during_the_segment_before() -> None:
    """Both segments need a buffer; weights that a segment has already stream once."""
    buffers = Buffers(chain(100, 300), CS2)
    buffers.stream_again(("last", "first"), 3)
    assert tuple(buffers.num_bytes) == (600, 600, 800, 800 + 1200, 400)


@pytest.mark.parametrize("elements", [10**10, 10**12])
def test_buffers_do_not_grow_with_layers_beyond_the_link(elements: int) -> None:
    """So a model of any size trains, however little SRAM there is."""
    most = link_bytes(CS2)
    assert buffer_bytes(chain(elements, elements), CS2) == (most, most, most, 2 * most, most)
