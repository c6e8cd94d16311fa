"""Micro-batch policies, held against their definitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.program.micro_batches import (
    FILL_WAFER,
    Cut,
    Explore,
    MicroBatchPolicy,
    SizeRange,
    closest_size,
    explored_sizes,
    largest_divisor,
    rounds_of,
    share_of,
)

sizes = st.integers(1, 300)
AUTO = MicroBatchPolicy("auto")


def is_valid(batch_size: int, size: int) -> bool:
    return any(-(-batch_size // count) == size for count in range(1, batch_size + 1))


@given(sizes, st.integers(1, 8), st.integers(1, 300))
def test_auto_is_the_same_on_up_to_eight_systems(
    batch_size: int, num_csx: int, largest: int
) -> None:
    """On any wafer; and every system has work."""
    if num_csx > batch_size:
        return
    size = AUTO.size(batch_size, num_csx, largest)
    cut = Cut.of(batch_size, size, num_csx)
    assert cut.size == size <= largest
    assert cut.num_micro_batches >= min(batch_size, 8)
    if batch_size >= 8:
        assert cut == Cut.of(batch_size, AUTO.size(batch_size, 1, largest))


@given(
    sizes,
    st.lists(st.integers(1, 40), min_size=2, max_size=2),
    st.sampled_from(["auto", "fill_wafer", None, 1, 7, 64]),
    st.none() | st.integers(1, 300),
)
def test_systems_with_one_key_cut_the_batch_alike(
    batch_size: int, systems: list[int], requested: Any, largest: int | None
) -> None:
    if max(systems) > batch_size:
        return
    policy = MicroBatchPolicy(requested)
    keys = {policy.systems_key(batch_size, num_csx) for num_csx in systems}
    cuts = {
        Cut.of(batch_size, policy.size(batch_size, num_csx, largest), num_csx)
        for num_csx in systems
    }
    assert len(cuts) <= len(keys)


def test_systems_share_a_key_unless_they_decide_the_cut() -> None:
    keys = {
        requested: [MicroBatchPolicy(requested).systems_key(16, num_csx) for num_csx in (1, 8, 9)]
        for requested in ("auto", 2, None, "fill_wafer")
    }
    assert keys == {"auto": [8, 8, 9], 2: [8, 8, 9], None: [1, 8, 9], "fill_wafer": [1, 8, 9]}


@given(sizes, st.integers(1, 40), st.none() | st.integers(0, 300))
def test_auto_takes_the_fewest_rounds(batch_size: int, num_csx: int, largest: int | None) -> None:
    """No larger size that fits and leaves enough micro-batches takes fewer."""
    if num_csx > batch_size:
        return
    size = AUTO.size(batch_size, num_csx, largest)
    wanted = min(batch_size, max(8, num_csx))
    limit = batch_size if largest is None else max(1, largest)
    rounds = rounds_of(batch_size, wanted, size)
    enough = [m for m in range(1, limit + 1) if Cut.of(batch_size, m).num_micro_batches >= wanted]
    assert min(rounds_of(batch_size, wanted, m) for m in enough) == rounds


@pytest.mark.parametrize(
    ("batch_size", "largest", "size"),
    [(673, None, 85), (673, 40, 40), (64, 5, 4), (64, 3, 3), (48, 8, 6), (12, None, 1)],
)
def test_auto_prefers_micro_batches_of_one_size(
    batch_size: int, largest: int | None, size: int
) -> None:
    """Where they take as many rounds on eight systems; a prime batch has none."""
    assert AUTO.size(batch_size, 2, largest) == size


@given(num_csx=sizes, more=st.integers(0, 5000), largest=st.integers(1, 5000))
def test_fill_wafer_takes_the_fewest_rounds(num_csx: int, more: int, largest: int) -> None:
    """No larger size saves a round within the limit, and no smaller one keeps the rounds."""
    batch_size = num_csx + more
    size = FILL_WAFER.size(batch_size, num_csx, largest)
    rounds = rounds_of(batch_size, num_csx, size)
    assert 1 <= size <= largest
    assert rounds == rounds_of(batch_size, num_csx, largest)
    assert size == 1 or rounds_of(batch_size, num_csx, size - 1) > rounds


def test_fill_wafer_takes_the_published_sizes() -> None:
    """A share of 12 samples can be cut into 12, 6, 4, 3, 2 or 1 and nothing between."""
    found = [FILL_WAFER.size(24, 2, largest) for largest in (99, 11, 5, 3, 2, 1)]
    assert found == [12, 6, 4, 3, 2, 1]
    assert share_of(25, 2) == 13


@pytest.mark.parametrize(
    ("batch_size", "requested", "num_csx", "size"),
    [
        (64, 4, 2, 4), (64, 64, 1, 64), (12, None, 4, 3), (12, None, 1, 12), (5, "auto", 2, 1),
        (673, 168, 1, 169), (673, 168, 2, 169), (673, 168, 4, 169), (673, 1000, 1, 673),
        (48, 5, 2, 5), (7, 5, 1, 4), (10, None, 4, 3),
    ],
)  # fmt: skip
def test_size_of_small_batches(batch_size: int, requested: Any, num_csx: int, size: int) -> None:
    """Cases worked out by hand; 673 and 168 are published (Cerebras, "Microbatching")."""
    policy = MicroBatchPolicy(requested)
    assert policy.size(batch_size, num_csx) == size
    policy.check(batch_size, num_csx)


@given(sizes, sizes)
def test_closest_size_is_the_closest_valid_one(batch_size: int, wanted: int) -> None:
    """Valid sizes are ceil(batch / k)."""
    size = closest_size(batch_size, wanted)
    assert is_valid(batch_size, size)
    away = abs(size - wanted)
    nearer = range(max(1, wanted - away + 1), wanted + away)
    assert not any(is_valid(batch_size, other) for other in nearer)


def test_adjustment_names_both_sizes() -> None:
    """Only where the requested integer is not the size."""
    line = MicroBatchPolicy(168).adjustment(169) or ""
    assert "168" in line
    assert "169" in line
    assert MicroBatchPolicy(169).adjustment(169) is None
    assert AUTO.adjustment(169) is None


@given(sizes, sizes, st.integers(1, 40))
def test_a_cut_is_that_of_tensor_split(batch_size: int, size: int, num_csx: int) -> None:
    """The micro-batches are those of torch, and every system has one."""
    if num_csx > batch_size:
        return
    cut = Cut.of(batch_size, closest_size(batch_size, size), num_csx)
    parts = [len(part) for part in torch.empty(batch_size).tensor_split(cut.num_micro_batches)]
    assert len(parts) >= num_csx
    assert parts == sorted(parts, reverse=True)
    assert parts[0] == cut.size
    assert parts.count(cut.size - 1) == cut.num_short


@pytest.mark.parametrize(
    ("requested", "name"),
    [
        (4, "integer"),
        ("auto", "auto"),
        ("fill_wafer", "fill_wafer"),
        (None, "none"),
        (Explore(), "explore"),
    ],
)
def test_describe_names_the_policy(requested: Any, name: str) -> None:
    """One line says batch, micro-batches and policy."""
    policy = MicroBatchPolicy(requested)
    assert policy.name == name
    line = policy.describe(Cut(16, 8))
    assert line == f"Effective batch size is 16: 8 x micro-batch 2 (policy: {name})"
    assert "8 x micro-batch 2 at most" in policy.describe(Cut(15, 8))


@pytest.mark.parametrize(
    ("requested", "num_csx", "code"),
    [
        ("auto", 4, "batch-below-systems"),
        ("fill_wafer", 4, "batch-below-systems"),
        (3, 2, "system-without-micro-batch"),
        (Explore(explore=SizeRange(min=3)), 2, "no-size-to-explore"),
    ],
)
def test_check_refuses_a_batch_of_three(requested: Any, num_csx: int, code: str) -> None:
    """Some system would never have anything to do."""
    with raises(ConfigError, code):
        MicroBatchPolicy(requested).check(3, num_csx)


def test_explore_has_no_size_of_its_own() -> None:
    """Its sizes are compared first."""
    with raises(ConfigError, "explore-states-no-size"):
        MicroBatchPolicy(Explore()).size(8, 1)


@given(sizes, st.integers(1, 300))
def test_largest_divisor_leaves_no_remainder(batch_size: int, at_most: int) -> None:
    """Nothing between it and the bound divides the batch."""
    size = largest_divisor(batch_size, at_most)
    assert batch_size % size == 0
    assert size <= at_most
    assert all(batch_size % d for d in range(size + 1, min(at_most, batch_size) + 1))


@given(sizes, st.integers(1, 40))
def test_explored_sizes_are_all_valid_ones_of_a_share(batch_size: int, num_csx: int) -> None:
    """Each of them fills the rounds of every system."""
    if num_csx > batch_size:
        return
    share = share_of(batch_size, num_csx)
    valid = {-(-share // count) for count in range(1, share + 1)}
    assert explored_sizes(batch_size, SizeRange(), num_csx) == sorted(valid)


def test_explored_sizes_stay_in_their_range() -> None:
    """From min to max, both included."""
    assert explored_sizes(24, SizeRange(min=3, max=8), 1) == [3, 4, 5, 6, 8]


def test_explored_sizes_have_whole_groups() -> None:
    """Of four samples, in micro-batches of one size."""
    assert explored_sizes(24, SizeRange(), 1, 4) == [4, 8, 12, 24]
    assert explored_sizes(24, SizeRange(max=11), 2, 4) == [4]
    with raises(ConfigError, "no-size-to-explore"):
        explored_sizes(24, SizeRange(max=3), 1, 4)


@pytest.mark.parametrize(("requested", "group"), [("auto", 4), (6, 4), (None, 16)])
def test_check_refuses_to_cut_groups(requested: Any, group: int) -> None:
    """Micro-batches of 24 samples are of 3, of 6, and of all."""
    with raises(ConfigError, "group-cut"):
        MicroBatchPolicy(requested).check(24, 1, group)
    MicroBatchPolicy(requested).check(24, 1, 3)


def test_explored_sizes_of_a_batch_of_billions() -> None:
    """Trying every size would never end."""
    assert explored_sizes(10**10, SizeRange(min=10**9), 2) == [10**9, 1_250_000_000, 1_666_666_667,
                                                               2_500_000_000, 5 * 10**9]  # fmt: skip
    assert AUTO.size(10**10, 4) == 1_250_000_000


def test_a_range_without_a_size_is_refused() -> None:
    """Both a range between two sizes and a range that is empty."""
    with raises(ConfigError, "no-size-to-explore") as caught:
        explored_sizes(24, SizeRange(min=7, max=7), 1)
    assert caught.value.value == "7 to 7"
    with pytest.raises(ConfigError):
        SizeRange(min=3, max=2)
