"""SRAM of a PE: what fits, and in which bank it begins."""

from __future__ import annotations

import dataclasses

from csnode.fabric.dtypes import Dtype
from csnode.fabric.memory import Layout
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError, ApplianceResourceExhausted
from waferstream.machine.hardware.fabric import WSE2


def test_layout_fills_the_sram_and_no_more() -> None:
    """48 KB can be used to the last byte; one byte more is refused with the numbers."""
    layout = Layout(WSE2)
    layout.allocate("all", WSE2.sram_bytes_per_pe // 4)
    with raises(ApplianceResourceExhausted, "pe-sram-exceeded"):
        layout.allocate("more", 1, Dtype.FP16)


def test_layout_arrays_do_not_overlap() -> None:
    """The bytes of one array end before those of the next begin."""
    layout = Layout(WSE2)
    arrays = [layout.allocate(f"a{n}", n + 1, dtype) for n, dtype in enumerate([*Dtype] * 4)]
    ends = [a.address + a.length * a.dtype.num_bytes for a in arrays]
    assert all(end <= after.address for end, after in zip(ends, arrays[1:], strict=False))


def test_layout_refuses_a_name_twice() -> None:
    """Two arrays of one name are refused."""
    layout = Layout(WSE2)
    layout.allocate("x", 4)
    with raises(ApplianceCompilationError, "array-name-or-length"):
        layout.allocate("x", 4)


def test_slice_needs_an_element() -> None:
    """An empty slice is not an operand."""
    with raises(ApplianceCompilationError, "operand-empty"):
        Layout(WSE2).allocate("x", 4)[2:2]


def test_layout_starts_arrays_in_different_banks() -> None:
    """Up to four consecutive arrays begin in four banks."""
    layout = Layout(WSE2)
    starts = {layout.allocate(str(n), 7).whole.bank(WSE2.sram_banks) for n in range(4)}
    assert len(starts) == 4


def test_slice_has_count_stride_and_address() -> None:
    """A strided slice counts its elements and has the address of the first one."""
    part = Layout(WSE2).allocate("x", 10)[1:10:3]
    assert (part.count, part.stride, part.address) == (3, 3, 4)
    assert dataclasses.asdict(part)["start"] == 1
