"""The tiers of MemoryX: DRAM first, then flash."""

from hypothesis import given
from hypothesis import strategies as st

from memoryx.tiers import Holding, fill_tiers
from tests.support.errors import raises
from timing.hardware import MemoryXSpec
from wsc.core.errors import ApplianceResourceExhausted

sizes = st.integers(1, 10**15)


def spec(dram_bytes: int, flash_bytes: int = 0) -> MemoryXSpec:
    return MemoryXSpec(dram_bytes=dram_bytes, flash_bytes=flash_bytes)


def test_fill_tiers_places_masters_then_sums_then_state() -> None:
    """Masters fill DRAM first, gradient sums next, optimizer state last."""
    for dram_bytes, in_flash in ((16, (0, 0, 0)), (12, (0, 0, 4)), (6, (0, 2, 8)), (1, (3, 4, 8))):
        tiers = fill_tiers(spec(dram_bytes, 16), 1, 1, 8)
        held = (tiers.masters, tiers.sums, tiers.state)
        assert tuple(kind.flash_bytes for kind in held) == in_flash
        assert tuple(kind.num_bytes for kind in held) == (4, 4, 8)


def test_fill_tiers_of_a_trillion_parameters_needs_no_flash() -> None:
    """16 bytes per parameter, 16 TB of 36; 24 trillion take 384 TB of the 1.2 PB of flash."""
    assert fill_tiers(MemoryXSpec(), 10**12, 10**12, 8).flash_bytes == 0
    large = fill_tiers(MemoryXSpec(flash_bytes=12 * 10**14), 24 * 10**12, 24 * 10**12, 8)
    assert large.dram_bytes == 36 * 10**12
    assert large.flash_bytes == (384 - 36) * 10**12


def test_fill_tiers_refuses_a_model_beyond_dram_and_flash() -> None:
    """The error names every part, both tiers, and the keys to change."""
    with raises(ApplianceResourceExhausted, "model-exceeds-memoryx") as caught:
        fill_tiers(spec(8 << 30, 4 << 30), 1 << 30, 1 << 30, 8)
    text = str(caught.value)
    for part in ("16.0 GiB", "fp32 weights 4.0 GiB", "optimizer state 8.0 GiB", "8.0 GiB of DRAM"):
        assert part in text
    assert "4.0 GiB of flash" in text
    assert "memoryx.flash_bytes" in text


@given(sizes, sizes, st.integers(0, 10**14), st.integers(0, 12))
def test_fill_tiers_uses_flash_only_when_dram_is_full(
    dram_bytes: int, flash_bytes: int, num_elements: int, state_bytes: int
) -> None:
    """All bytes lie somewhere, and flash is used only when DRAM is full."""
    try:
        tiers = fill_tiers(spec(dram_bytes, flash_bytes), num_elements, num_elements, state_bytes)
    except ApplianceResourceExhausted:
        assert num_elements * (8 + state_bytes) > dram_bytes + flash_bytes
        return
    assert tiers.dram_bytes + tiers.flash_bytes == num_elements * (8 + state_bytes)
    assert tiers.dram_bytes <= dram_bytes
    assert tiers.flash_bytes <= flash_bytes
    assert tiers.flash_bytes == 0 or tiers.dram_bytes == dram_bytes


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(0, 1000))
def test_in_flash_splits_parts_like_the_whole(parts: list[int], permille: int) -> None:
    """Each tensor's part in flash is its share, rounded up."""
    whole = Holding(sum(parts), sum(parts) * permille // 1000)
    in_flash = [whole.in_flash(part) for part in parts]
    assert whole.flash_bytes <= sum(in_flash) <= whole.flash_bytes + len(parts)
    assert all(0 <= flash <= part for flash, part in zip(in_flash, parts, strict=True))
