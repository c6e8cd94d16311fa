"""The order of samples is a permutation of every epoch, at any position in constant time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelzoo.data.order import SampleOrder, mix64

SIZES = st.integers(1, 300)
SEEDS = st.integers(0, 2**32)


@given(SIZES, SEEDS, st.integers(0, 5))
def test_an_epoch_has_each_sample_once(num_samples: int, seed: int, epoch: int) -> None:
    """The shuffle of any epoch of any length is a permutation."""
    order = SampleOrder(num_samples, shuffle=True, seed=seed)
    positions = np.arange(epoch * num_samples, (epoch + 1) * num_samples)
    assert sorted(order.at(positions)) == list(range(num_samples))


@given(SIZES, SEEDS, st.integers(0, 1000), st.integers(1, 50), st.integers(0, 50))
def test_order_does_not_depend_on_the_cut_of_the_stream(
    num_samples: int, seed: int, first: int, length: int, cut: int
) -> None:
    """Reading a range whole or in two parts gives the same samples, also across epochs."""
    order = SampleOrder(num_samples, shuffle=True, seed=seed)
    positions = np.arange(first, first + length)
    parts = (order.at(positions[:cut]), order.at(positions[cut:]))
    assert np.array_equal(order.at(positions), np.concatenate(parts))


def test_order_without_shuffle_is_file_order() -> None:
    """Indices count up and start again."""
    order = SampleOrder(3, shuffle=False, seed=0)
    assert order.at(np.arange(7)).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_epochs_and_seeds_differ() -> None:
    """Another epoch or another seed is another order."""
    order, other = SampleOrder(100, True, seed=0), SampleOrder(100, True, seed=1)
    first, second = order.at(np.arange(200)).reshape(2, 100)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other.at(np.arange(100)))


def test_shuffle_is_statistically_random() -> None:
    """Positions before and after the shuffle are uncorrelated."""
    shuffled = SampleOrder(100_000, True, seed=0).at(np.arange(100_000))
    assert abs(np.corrcoef(np.arange(100_000), shuffled)[0, 1]) < 0.02
    assert abs(np.corrcoef(shuffled[:-1], shuffled[1:])[0, 1]) < 0.02


def test_order_far_into_a_huge_dataset() -> None:
    """A position does not depend on earlier ones: 10^15 samples cost the same as ten."""
    order = SampleOrder(10**15, True, seed=0)
    sample = order.at(np.array([10**15 - 1, 7 * 10**15]))
    assert ((sample >= 0) & (sample < 10**15)).all()


def test_order_is_frozen() -> None:
    """The order never changes between releases: a checkpoint's position must keep its meaning."""
    assert SampleOrder(10, True, seed=7).at(np.arange(10)).tolist() == [
        7,
        5,
        2,
        3,
        4,
        1,
        8,
        0,
        6,
        9,
    ]


def test_mix64_is_splitmix64() -> None:
    """The first output of SplitMix64 seeded with 0 is 0xE220A8397B1DCDAF (Java's SplittableRandom)."""
    gamma = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
    assert int(mix64(gamma)[0]) == 0xE220A8397B1DCDAF
