"""SRAM: what fits, where it begins, and what a bank conflict costs."""

import dataclasses

import pytest

from csnode.fabric import Dtype, Fabric, Program, Vector, run
from csnode.fabric.memory import Layout
from timing.hardware.fabric import WSE2
from wsc.core.errors import ApplianceCompilationError, ApplianceResourceExhausted


def test_arrays_fill_the_sram_and_no_more():
    """48 KB can be used to the last byte; one byte more is refused with the numbers."""
    layout = Layout(WSE2)
    layout.allocate("all", WSE2.sram_bytes_per_pe // 4)
    with pytest.raises(ApplianceResourceExhausted, match=r"48\.0 KiB"):
        layout.allocate("more", 1, Dtype.FP16)


def test_arrays_do_not_overlap():
    """The bytes of one array end before those of the next begin."""
    layout = Layout(WSE2)
    arrays = [layout.allocate(f"a{n}", n + 1, dtype) for n, dtype in enumerate([*Dtype] * 4)]
    ends = [a.address + a.length * a.dtype.num_bytes for a in arrays]
    assert all(end <= after.address for end, after in zip(ends, arrays[1:], strict=False))


def test_a_name_is_given_once():
    """Two arrays of one name are refused."""
    layout = Layout(WSE2)
    layout.allocate("x", 4)
    with pytest.raises(ApplianceCompilationError, match="'x'"):
        layout.allocate("x", 4)


def test_an_operand_has_elements():
    """An empty slice is no operand."""
    with pytest.raises(ApplianceCompilationError, match="no elements"):
        Layout(WSE2).allocate("x", 4)[2:2]


def cycles(banks):
    program = Program(Fabric(1, 1))
    a, b = (program.array(name, 100, bank=bank) for name, bank in zip("ab", banks, strict=True))
    program.do((0, 0), Vector("add", a.whole, a.whole, b.whole))
    return run(program, {}).cycles


def test_operands_in_one_bank_take_longer():
    """Two operands in one bank cost the published factor on the elements, not on the set-up."""
    setup = WSE2.vector_setup_cycles
    assert cycles((0, 2)) == setup + 100
    assert cycles((0, 0)) == setup + 100 * WSE2.bank_conflict_factor


def test_arrays_keep_to_different_banks_by_themselves():
    """Up to four arrays that follow one another begin in four banks."""
    layout = Layout(WSE2)
    starts = {layout.allocate(str(n), 7).whole.bank(WSE2.sram_banks) for n in range(4)}
    assert len(starts) == 4


def test_slices_know_their_place():
    """A strided slice counts its elements and begins where it says."""
    part = Layout(WSE2).allocate("x", 10)[1:10:3]
    assert (part.count, part.stride, part.address) == (3, 3, 4)
    assert dataclasses.asdict(part)["start"] == 1
