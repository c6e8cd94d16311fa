"""The tiers of MemoryX: DRAM first, then flash."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memoryx.tiers import Holding, fill_tiers, tiers_of
from tests.support.errors import raises
from tests.support.roles.local_machine import compiled_regression
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.sparsity.levels import Constant, Linear
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity
from waferstream.machine.hardware import MemoryXSpec

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


def test_sparse_weight_is_counted_as_values_and_mask() -> None:
    """At the largest density of its schedule; gradient sums whole where RigL reads all of them."""
    program = compiled_regression(6, 3).program
    matrix = max(program.parameters, key=lambda spec: spec.num_elements)
    size, all_elements = matrix.num_elements, program.num_elements(program.trained)
    mask_bytes, rest = -(-size // 8), all_elements - size
    quarter: dict[str, Any] = {"level": Constant(value=0.75)}
    cases = {
        "static": (quarter, 0.25, 0.25),
        "rigl": ({**quarter, "update": UpdateSteps(freq=2)}, 0.25, 1.0),
        "gmp": ({"level": Linear(init=0.5, slope=0.1), "update": UpdateSteps(freq=2)}, 0.5, 0.5),
        "set": ({**quarter, "update": UpdateSteps(freq=2, start=2)}, 1.0, 1.0),
    }
    for algorithm, (given_keys, held, summed) in cases.items():
        sparse = WeightSparsity(matrix.name, algorithm, **given_keys)  # type: ignore[arg-type]
        kept, sums = (rest + int(size * density) for density in (held, summed))
        tiers = tiers_of(program, spec(10**6), 8, (sparse,))
        found = [kind.num_bytes for kind in (tiers.masters, tiers.sums, tiers.state)]
        assert found == [4 * kept + mask_bytes, 4 * sums, 8 * kept]
        tiers_of(program, spec(sum(found)), 8, (sparse,))
        with raises(ApplianceResourceExhausted, "model-exceeds-memoryx"):
            tiers_of(program, spec(sum(found) - 1), 8, (sparse,))


def test_weights_are_loaded_whole() -> None:
    """Whole masters have to fit, also where values and masks would."""
    program = compiled_regression(6, 3).program
    specs = tuple(WeightSparsity(p.name, "static", Constant(value=1)) for p in program.parameters)
    whole = 4 * program.num_elements(program.parameter)
    assert tiers_of(program, spec(whole), 0, specs).masters.num_bytes < whole / 10
    with raises(ApplianceResourceExhausted, "model-exceeds-memoryx"):
        tiers_of(program, spec(whole - 1), 0, specs)
