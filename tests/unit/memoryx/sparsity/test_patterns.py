"""First masks and changed masks: exact counts, published choices, nothing but the values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memoryx.sparsity.patterns import checkerboard, first_mask, next_mask, top
from waferstream.core.sparsity.levels import Constant, Linear
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity, kept_of

EVERY_STEP = UpdateSteps(freq=1)


def spec(**changes: Any) -> WeightSparsity:
    made = {"name": "w", "algorithm": "static", "level": Constant(value=0.75), **changes}
    return WeightSparsity(**made)


def dynamic(algorithm: str, drop: float, **changes: Any) -> WeightSparsity:
    drop_fraction = Constant(value=drop)
    return spec(algorithm=algorithm, update=EVERY_STEP, drop_fraction=drop_fraction, **changes)


@pytest.mark.parametrize("init", ["random", "topk", "checkerboard"])
def test_first_mask_keeps_the_asked_number(init: str) -> None:
    """1 - 0.75 of 77 weights, rounded down."""
    weight = torch.randn(7, 11, generator=torch.Generator().manual_seed(1))
    assert int(first_mask(spec(init=init), weight).sum()) == 19


def test_random_mask_depends_on_seed_and_name() -> None:
    """Not on the weights, the process or the order."""
    weight = torch.ones(20, 30)
    one = first_mask(spec(), weight)
    assert torch.equal(one, first_mask(spec(), torch.zeros(20, 30)))
    assert not torch.equal(one, first_mask(spec(seed=1), weight))
    assert not torch.equal(one, first_mask(spec(name="v"), weight))


def test_topk_keeps_the_largest_and_from_zeros_what_is_not_zero() -> None:
    weight = torch.tensor([[0.0, -3.0, 1.0, 2.0]])
    kept = first_mask(spec(init="topk", level=Constant(value=0.5)), weight)
    assert kept.tolist() == [[False, True, False, True]]
    assert first_mask(spec(init="from_zeros"), weight).tolist() == [[False, True, True, True]]


def test_weight_whose_schedule_begins_later_starts_dense() -> None:
    late = spec(algorithm="gmp", update=UpdateSteps(freq=10, start=20))
    assert bool(first_mask(late, torch.ones(4, 4)).all())


def test_checkerboard_of_one_half_alternates_in_rows_and_columns() -> None:
    mask = checkerboard((4, 6), 0.5)
    assert torch.equal(mask[:, 1:], ~mask[:, :-1])
    assert torch.equal(mask[1:], ~mask[:-1])


def test_rigl_drops_the_smallest_and_grows_at_the_largest_gradient() -> None:
    """Two of four stay; what was dropped may grow again (Evci et al. 2020, algorithm 1)."""
    weight = torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
    gradient = torch.tensor([[9.0, 9.0, 0.1, -6.0, 0.2, -7.0, 0.3, 0.4]])
    rule = dynamic("rigl", 0.5, level=Constant(value=0.5))
    mask = next_mask(rule, weight != 0, weight, gradient, 1)
    assert mask.tolist() == [[True, True, False, True, False, True, False, False]]


def test_rigl_keeps_active_weights_that_are_zero_before_masked_ones() -> None:
    """A weight that has just grown is zero, and is no worse than one that is masked."""
    weight, mask = torch.zeros(1, 4), torch.tensor([[False, True, False, True]])
    rule = dynamic("rigl", 0.0, level=Constant(value=0.5))
    assert torch.equal(next_mask(rule, mask, weight, torch.ones(1, 4), 1), mask)


def test_set_grows_at_random_places_keyed_by_the_update() -> None:
    weight = torch.randn(16, 16, generator=torch.Generator().manual_seed(2))
    rule = dynamic("set", 0.3, level=Constant(value=0.5))
    mask = first_mask(rule, weight)
    one, again = (next_mask(rule, mask, weight * mask, weight, 1) for _ in range(2))
    assert torch.equal(one, again)
    assert int(one.sum()) == int(mask.sum()) == 128
    assert not torch.equal(one, next_mask(rule, mask, weight * mask, weight, 2))


def test_gmp_follows_its_schedule() -> None:
    rule = spec(algorithm="gmp", level=Linear(init=0.0, slope=0.25), update=EVERY_STEP)
    weight = torch.arange(8.0).view(2, 4)
    kept = [int(next_mask(rule, weight >= 0, weight, weight, t).sum()) for t in (1, 2, 3, 4)]
    assert kept == [6, 4, 2, 0]


@pytest.mark.parametrize("groups", [{"in_groups": 3}, {"out_groups": 2}])
def test_balanced_groups_have_equal_density(groups: dict[str, int]) -> None:
    """Groups of columns, or of rows, before and after an update."""
    rule = dynamic("rigl", 0.5, level=Constant(value=0.5), **groups)
    weight = torch.randn(8, 12, generator=torch.Generator().manual_seed(3))
    mask = first_mask(rule, weight)
    changed = next_mask(rule, mask, weight * mask, weight.flip(0), 1)
    for found in (mask, changed):
        by_group = (
            found.view(8, 3, 4).sum((0, 2)) if "in_groups" in groups else found.view(2, -1).sum(1)
        )
        assert len(set(by_group.tolist())) == 1
        assert int(found.sum()) == 48


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(0, 45))
def test_top_is_a_stable_sort(values: list[int], count: int) -> None:
    """Of equal scores the first ones are taken."""
    order = sorted(range(len(values)), key=lambda i: -values[i])[:count]
    mask = top(torch.tensor(values, dtype=torch.float32), count)
    assert torch.nonzero(mask).flatten().tolist() == sorted(order)


def test_count_of_remaining_weights_is_that_of_fp32() -> None:
    """1 - 0.9 is above 0.1 in fp32; double precision would keep 99."""
    assert kept_of(1000, 0.9) == 100
