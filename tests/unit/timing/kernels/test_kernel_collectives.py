"""Collectives: published cycles, limits of the forms, and the HPDC'24 formulas beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timing.hardware.fabric import WSE2, WSE3
from timing.kernels import collectives
from validation.published_programs import hpdc
from validation.published_programs.communication import (
    low_depth_program,
    message,
    start_cycles,
    two_phase_program,
)

pes = st.integers(1, 600)
wavelets = st.integers(1, 5000)
REDUCES = (collectives.star, collectives.chain, collectives.binomial, collectives.two_phase)


@pytest.mark.parametrize(("length", "cycles"), [(1, 3128), (64, 3191), (8192, 11319)])
def test_a_chain_takes_what_was_measured(length: int, cycles: int) -> None:
    """K0001, K0007 and K0014, to the cycle."""
    assert start_cycles(WSE2) + collectives.chain(WSE2, 512, length) == cycles


def test_two_phase_programs_take_what_was_measured() -> None:
    """K0016, K0026 and K0048: loading descriptors ahead saves 36 cycles."""
    assert two_phase_program(WSE2, 512, 1, 32, descriptors_loaded=False) == 819
    assert two_phase_program(WSE2, 512, 1024, 32, descriptors_loaded=False) == 2865
    assert two_phase_program(WSE2, 512, 4096, 32, descriptors_loaded=True) == 8973


def test_the_early_tree_is_within_three_percent_of_what_was_measured() -> None:
    """K0030, K0037 and K0041 were not used for any constant."""
    for length, cycles in ((1, 742), (128, 1646), (2048, 18801)):
        assert low_depth_program(WSE2, 512, length) == pytest.approx(cycles, rel=0.03)


def test_forms_without_restarts_are_those_of_the_paper() -> None:
    """Formulas of HPDC'24 for 512 PEs and 100 wavelets, T_R = 2."""
    assert collectives.chain(WSE2, 512, 100) == 100 + 6 * 511
    assert collectives.star(WSE2, 512, 100) == 100 * 511 + 5 + 1
    assert collectives.broadcast(WSE2, 512, 100) == 100 + 512 + 4
    assert collectives.broadcast_2d(WSE2, 8, 16, 100) == 100 + 8 + 16 - 2 + 5
    assert collectives.snake_reduce(WSE2, 8, 16, 100) == collectives.chain(WSE2, 128, 100)
    assert hpdc.two_phase(WSE2, 512, 100, 32) == 200 + 741
    assert hpdc.tree(WSE3, 6, 1) == pytest.approx(1.125 * 3 * 6 / 2 / 5 + 2 * 5 + 5 * 3)
    assert hpdc.tree(WSE2, 6, 100) == 3 * 100 + 5 * 3


@given(pes=st.sampled_from([64, 128, 256, 512]), length=wavelets)
def test_counting_restarts_changes_a_two_phase_reduce_by_little(pes: int, length: int) -> None:
    """What a leader loses between its two streams is less than 4 % of the paper's formula."""
    published = hpdc.two_phase(WSE2, pes, length)
    assert collectives.two_phase(WSE2, pes, length) == pytest.approx(published, rel=0.04)


@given(pes=st.sampled_from([2, 4, 16, 128, 512]), length=wavelets)
def test_a_tree_is_never_faster_than_the_paper_says(pes: int, length: int) -> None:
    """The paper's formula counts no time between two additions of a PE."""
    assert collectives.binomial(WSE2, pes, length) >= hpdc.tree(WSE2, pes, length) - 1e-6


@given(pes=pes, length=wavelets)
def test_no_reduce_beats_its_lower_bounds(pes: int, length: int) -> None:
    """The root takes in every wavelet of its neighbour, and the farthest PE's must reach it."""
    bound = max(length, pes - 1) if pes > 1 else 0
    for form in REDUCES:
        assert form(WSE2, pes, length) >= bound
    assert collectives.reduce(WSE2, pes, length) == min(f(WSE2, pes, length) for f in REDUCES)


@given(pes=pes, length=wavelets)
def test_more_pes_or_wavelets_never_take_less(pes: int, length: int) -> None:
    """Chain, star, tree and broadcast grow with both; a two-phase reduce of a given group too."""
    for form in (collectives.star, collectives.chain, collectives.binomial, collectives.broadcast):
        assert form(WSE2, pes + 1, length) >= form(WSE2, pes, length)
        assert form(WSE2, pes, length + 1) >= form(WSE2, pes, length)


def test_the_best_reduce_changes_with_the_length() -> None:
    """On a row of a wafer: a star for single wavelets, two-phase in between, a chain for many."""
    best = {
        length: min(REDUCES, key=lambda form: form(WSE2, 750, length)) for length in (1, 256, 16384)
    }
    assert best == {
        1: collectives.star,
        256: collectives.two_phase,
        16384: collectives.chain,
    }


def test_a_star_after_a_broadcast_takes_in_what_the_near_pes_have_sent_by_then() -> None:
    """31 PEs send two wavelets: in a wave, the root has taken in 30 when the farthest PE starts."""
    assert collectives.star(WSE2, 32, 2) == 6 + 62
    assert collectives.star(WSE2, 32, 2, in_a_wave=True) == 6 + 62 - 30
    assert collectives.star(WSE2, 32, 1, in_a_wave=True) == 31 + 5 + 1  # the way of the farthest
    assert collectives.star(WSE2, 2, 9, in_a_wave=True) == collectives.star(WSE2, 2, 9)


@given(pes=pes, length=wavelets)
def test_a_wave_helps_stars_alone(pes: int, length: int) -> None:
    """A chain, and trees of chains, wait for the farthest PE anyway."""
    aligned = collectives.reduce(WSE2, pes, length)
    waved = collectives.reduce_in_a_wave(WSE2, pes, length)
    assert waved <= aligned
    assert waved == aligned or aligned == collectives.star(WSE2, pes, length)
    gained = collectives.all_reduce(WSE2, pes, length) - collectives.all_reduce(
        WSE2, pes, length, in_a_wave=True
    )
    assert 0 <= gained <= aligned - waved


def test_one_pe_has_nothing_to_reduce() -> None:
    """All forms of a line of one PE take no time."""
    forms = (*REDUCES, collectives.broadcast, collectives.all_reduce, collectives.ring_all_reduce)
    assert [form(WSE2, 1, 100) for form in forms] == [0.0] * len(forms)


def test_slower_hops_and_links_show() -> None:
    """A WSE-3 takes two cycles per hop and 1.125 per wavelet (K0093, K0094)."""
    assert collectives.chain(WSE3, 11, 801) == 1.125 * 800 + 1 + 10 * (2 + 5)


def test_a_short_two_phase_reduce_waits_for_its_farthest_pe() -> None:
    """20 groups of 20: 19 hops down the last group, 19 from leader to leader, and one wavelet."""
    assert collectives.two_phase(WSE2, 400, 1) == 19 * (1 + 5) + 19 * (20 + 5) + 1


def test_a_message_pays_for_hops_turns_and_wavelets() -> None:
    """K0093, K0094, K0095 and K0097 added up."""
    assert message(WSE3, hops=10, wavelets=8, turns=1) == 33 + 20 + 20 + 9
