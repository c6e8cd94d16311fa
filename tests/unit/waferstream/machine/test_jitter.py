"""Stragglers and jitter."""

import math
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.machine.hardware import EVEN, JitterSpec
from waferstream.machine.jitter import Jitter, scaled, slowed, slowest_factor

indices = st.integers(0, 1000)
DRAWS = range(4000)
FIRST_OF_SEED_7 = [1.023784281070007, 1.1338763412155755, 1.0670922938745409]


def test_an_even_machine_has_no_factors() -> None:
    """By default nothing is drawn and every factor is exactly 1."""
    jitter = Jitter(EVEN)
    assert jitter.kernel(1, 2, 3, 2048) == jitter.transfer("down", 1, 2, 3, 2048) == 1.0


@given(st.integers(0, 2**32), indices, indices, indices, st.integers(1, 2048))
def test_a_factor_depends_on_seed_and_place_alone(
    seed: int, step: int, round_index: int, segment: int, systems: int
) -> None:
    """Another clock draws the same; another seed, step, round or segment draws anew."""
    spec = JitterSpec(seed=seed, kernel_sigma=0.1)
    drawn = Jitter(spec).kernel(step, round_index, segment, systems)
    assert drawn == Jitter(spec).kernel(step, round_index, segment, systems)
    others = {
        Jitter(JitterSpec(seed=seed + 1, kernel_sigma=0.1)).kernel(
            step, round_index, segment, systems
        ),
        Jitter(spec).kernel(step + 1, round_index, segment, systems),
        Jitter(spec).kernel(step, round_index + 1, segment, systems),
        Jitter(spec).kernel(step, round_index, segment + 1, systems),
    }
    assert drawn not in others


def test_a_seed_gives_the_same_run_on_every_host() -> None:
    """The first factors of seed 7, written down."""
    jitter = Jitter(JitterSpec(seed=7, kernel_sigma=0.05, transfer_sigma=0.05))
    drawn = [
        jitter.kernel(1, 0, 0, 1),
        jitter.kernel(1, 0, 0, 64),
        jitter.transfer("up", 1, 0, 0, 4),
    ]
    assert drawn == pytest.approx(FIRST_OF_SEED_7, rel=1e-12)


@given(st.floats(0.0, 1.0), st.integers(1, 2047), indices)
def test_more_systems_are_never_faster(sigma: float, systems: int, step: int) -> None:
    """The slowest of more takes no less time; stragglers included."""
    spec = JitterSpec(kernel_sigma=sigma, stragglers={"csx-3": 1.5, "csx-100": 2.0})
    few, more = (Jitter(spec).kernel(step, 0, 0, count) for count in (systems, systems + 1))
    assert more >= few


@pytest.mark.parametrize("bits", [0, 2**63 - 1])
def test_no_draw_is_out_of_bounds(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least and the greatest number there is lie eight deviations from the median."""
    monkeypatch.setattr("waferstream.machine.jitter.stream_key", lambda *_: bits)
    deviations = math.log(slowest_factor(0.1, 1, 0)) / 0.1
    assert abs(deviations) == pytest.approx(8.2, abs=0.1)
    assert (deviations > 0) == (bits > 0)


def test_one_system_has_median_1_and_the_stated_spread() -> None:
    """The logarithm of its factor is normal with the stated deviation."""
    logs = [math.log(slowest_factor(0.1, 1, 0, draw)) for draw in DRAWS]
    assert median(logs) == pytest.approx(0, abs=0.006)
    assert math.sqrt(fmean(log**2 for log in logs)) == pytest.approx(0.1, rel=0.04)


@pytest.mark.parametrize("systems", [2, 16, 64])
def test_drawing_the_slowest_at_once_is_drawing_all_of_them(systems: int) -> None:
    """The mean of the largest of n single draws is that of the one draw for n."""
    few = DRAWS[: len(DRAWS) // 16]
    singly = fmean(
        max(slowest_factor(0.1, 1, 1, draw, system) for system in range(systems)) for draw in few
    )
    at_once = fmean(slowest_factor(0.1, systems, 2, draw) for draw in DRAWS)
    assert at_once == pytest.approx(singly, abs=0.015)


def test_a_straggler_holds_up_all_that_work_with_it() -> None:
    """In a round that it has a micro-batch in, and only there."""
    jitter = Jitter(JitterSpec(stragglers={"csx-2": 1.5, "csx-0": 1.1, "br-0": 9.0}))
    assert [jitter.kernel(1, 0, 0, systems) for systems in (1, 2, 3, 4)] == [1.1, 1.1, 1.5, 1.5]


def test_each_direction_and_bucket_of_a_transfer_draws_for_itself() -> None:
    """Links vary as kernels do."""
    jitter = Jitter(JitterSpec(transfer_sigma=0.1))
    places = [("down", 1, 0, 0), ("up", 1, 0, 0), ("down", 2, 0, 0), ("down", 1, 0, 1)]
    assert len({jitter.transfer(*place, 4) for place in places}) == len(places)
    assert jitter.kernel(1, 0, 0, 4) == 1.0


@given(st.integers(0, 10**15), st.floats(1.0, 10.0))
def test_stretching_and_slowing_never_gain(amount: int, factor: float) -> None:
    """A time grows, a rate falls, and a factor of 1 changes neither."""
    assert scaled(amount, 1.0) == amount
    assert scaled(amount, factor) >= amount * (1 - 1e-15)
    assert slowed(amount + 1, 1.0) == amount + 1
    assert 1 <= slowed(amount + 1, factor) <= (amount + 1) * (1 + 1e-15)
    assert slowed(amount + 1, 3) == max(1, (amount + 1) // 3)


def test_slow_rooms_are_looked_up_by_kind_and_number() -> None:
    """The slowest of the roles that a cluster has; 1 where none is slow."""
    spec = JitterSpec(stragglers={"wgt-0": 1.5, "wgt-3": 2.0})
    assert [spec.slowest("wgt", count) for count in (0, 1, 3, 4)] == [1.0, 1.5, 1.5, 2.0]
    assert spec.slowest("br", 10) == 1.0
    assert spec.of("wgt-3") == 2.0
    assert spec.of("wgt-1") == 1.0
