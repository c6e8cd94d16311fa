"""Streams take of the SRAM what the link carries while a segment is being started, no more."""

from dataclasses import replace

import pytest

from tests.support.small_programs import program, segment
from timing.hardware import CS2, override
from timing.sram import SramPlan
from timing.sram.buffers import Buffers, buffer_bytes, link_bytes
from wsc.core.program import TensorSpec


def chain(first, last):
    """Two layers forward and backward, with weights of so many elements."""
    segments = (
        segment(0, layer="first", weights=("first",)),
        segment(1, layer="last", weights=("last",)),
        segment(2, layer="loss"),
        segment(3, "backward", "last", weights=("last",), gradients=("last",)),
        segment(4, "backward", "first", gradients=("first",)),
    )
    parameters = (TensorSpec("first", (first,), "float32"), TensorSpec("last", (last,), "float32"))
    return replace(program(segments=segments), parameters=parameters, stream_dtype="bfloat16")


def test_a_link_fills_its_buffer_while_a_segment_starts():
    """1.2 Tb/s for a millisecond."""
    wafer = override(CS2, io_bandwidth_bytes_per_s=150 * 10**9, segment_overhead_ps=10**9)
    assert link_bytes(wafer) == 150 * 10**6


def test_small_streams_need_no_more_than_their_own_size():
    """Weights of two bytes, its own or those that arrive for the next, and gradients of four."""
    assert buffer_bytes(chain(100, 300), CS2) == (600, 600, 600, 600 + 1200, 400)


def test_weights_that_stream_again_arrive_during_the_segment_before():
    """Both of them need the room; what a segment has already comes once."""
    buffers = Buffers(chain(100, 300), CS2)
    buffers.stream_again(("last", "first"), 3)
    assert tuple(buffers.num_bytes) == (600, 600, 800, 800 + 1200, 400)


@pytest.mark.parametrize("elements", [10**10, 10**12])
def test_a_layer_larger_than_the_wafer_passes_through(elements):
    """So a model of any size trains, however little SRAM there is."""
    most = link_bytes(CS2)
    assert buffer_bytes(chain(elements, elements), CS2) == (most, most, most, 2 * most, most)


def test_a_placement_counts_them():
    """What passes needs room beside what stays."""
    step = chain(10**10, 10**10)
    sram_plan = SramPlan.of(step, CS2)
    assert sram_plan.buffers == buffer_bytes(step, CS2)
    activations = sram_plan.peak.footprint.of(step.micro_batch_size)
    assert sram_plan.peak_bytes == activations + 2 * link_bytes(CS2)
