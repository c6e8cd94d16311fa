"""The no-stall condition."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.units import PS_PER_MS
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import PagedBytes
from waferstream.machine.stalls import StreamCheck, narrowest_bytes_per_s


def check(compute_ps: int, weights: int = 10**9, gradients: int = 0) -> StreamCheck:
    return StreamCheck("0", "backward", weights, gradients, compute_ps, 100 * 10**9)


def test_bound_holds_while_the_stream_is_fast_enough() -> None:
    """1 GB over 100 GB/s takes 10 ms."""
    assert check(10 * PS_PER_MS).holds
    assert not check(10 * PS_PER_MS - 1).holds


def test_the_busier_direction_decides() -> None:
    """Gradients and weights travel at the same time."""
    assert check(10 * PS_PER_MS, weights=10**9, gradients=10**9).holds
    assert not check(10 * PS_PER_MS, weights=0, gradients=2 * 10**9).holds


def test_masters_are_read_from_memory_meanwhile() -> None:
    """2 GB at 200 GB/s take 10 ms, too; the remedy names what is too narrow, or both."""
    read = replace(check(10 * PS_PER_MS), master_bytes=2 * 10**9, memory_bytes_per_s=200 * 10**9)
    assert read.holds
    slower = replace(read, memory_bytes_per_s=100 * 10**9)
    assert slower.stream_ps == 20 * PS_PER_MS
    assert slower.remedy(8, 0) == "memory of 200 GB/s"
    both = replace(slower, bandwidth_bytes_per_s=50 * 10**9)
    assert both.remedy(8, 0) == "a link of 100 GB/s and memory of 200 GB/s"


def test_the_cure_names_micro_batch_and_bandwidth() -> None:
    """Half as long on the wafer as on the wire: twice of either."""
    assert check(10 * PS_PER_MS).remedy(8, 100) == ""
    assert check(5 * PS_PER_MS).remedy(8, 100) == "micro-batch of 16 samples, or a link of 200 GB/s"


def test_activations_share_the_link() -> None:
    """Their transfer grows with the samples: where it outgrows the computing, no size is a cure."""
    paged = replace(check(15 * PS_PER_MS), paged=PagedBytes(fetched_bytes=10**9))
    assert paged.stream_ps == 20 * PS_PER_MS
    assert paged.remedy(8, 100) == "micro-batch of 16 samples, or a link of 134 GB/s"
    slow = replace(paged, paged=PagedBytes(fetched_bytes=2 * 10**9))
    assert "micro-batch" not in slow.remedy(8, 10**9)
    assert replace(paged, paged=PagedBytes(sent_bytes=10**9)).holds


def test_the_cure_names_the_nearest_share_of_zeros() -> None:
    """More zeros, or fewer; none where no share was found to suffice."""
    dense = replace(check(5 * PS_PER_MS), sufficient_density=0.25)
    assert dense.remedy(8, 0) == "a link of 200 GB/s, or 75% of the weights zero"
    sparse = replace(dense, density=0.1)
    assert sparse.remedy(8, 0) == "a link of 200 GB/s, or only 75% of the weights zero"
    assert check(10 * PS_PER_MS).remedy(8, 0) == ""


def test_a_segment_is_bound_by_what_takes_longest() -> None:
    link = check(5 * PS_PER_MS)
    memory = replace(link, master_bytes=10**9, memory_bytes_per_s=10**9)
    bounds = [each.bound for each in (check(10 * PS_PER_MS), link, memory)]
    assert bounds == ["compute", "link", "memory"]


def test_a_micro_batch_that_does_not_fit_cures_nothing() -> None:
    """Nor does a larger one help where its samples take no time."""
    assert "micro-batch" in check(5 * PS_PER_MS).remedy(8, 16)
    assert check(5 * PS_PER_MS).remedy(8, 15) == "a link of 200 GB/s"
    fixed = replace(check(5 * PS_PER_MS), overhead_ps=5 * PS_PER_MS)
    assert "micro-batch" not in fixed.remedy(8, 10**9)


def test_overhead_does_not_grow_with_the_micro_batch() -> None:
    """Four of five milliseconds: the fifth has to become six."""
    mostly_overhead = replace(check(5 * PS_PER_MS), overhead_ps=4 * PS_PER_MS)
    assert mostly_overhead.remedy(8, 100).startswith("micro-batch of 48 samples")


@pytest.mark.parametrize(
    ("compute_ps", "remedy"),
    [
        (10 * PS_PER_MS * 1000 // 1504, "a link of 151 GB/s"),
        (10 * PS_PER_MS // 250, "a link of 25000 GB/s"),
        (10 * PS_PER_MS * 1000 // 1014, "a link of 102 GB/s"),
    ],
)
def test_remedies_are_rounded_to_what_is_enough(compute_ps: int, remedy: str) -> None:
    """Up, never to the nearest."""
    assert check(compute_ps).remedy(8, 0) == remedy


@given(st.integers(1, 10**13), st.integers(0, 10**12), st.integers(0, 10**12))
def test_what_a_cure_says_would_do(compute: int, down: int, up: int) -> None:
    """With the bandwidth that it states nothing stalls."""
    found = check(compute, down, up)
    if remedy := found.remedy(8, 0):
        bandwidth = remedy.removeprefix("a link of ").removesuffix(" GB/s")
        assert replace(found, bandwidth_bytes_per_s=int(Decimal(bandwidth) * 10**9)).holds


def test_a_segment_that_takes_no_time_needs_all_that_there_is() -> None:
    """As one that takes the shortest time there is."""
    assert check(0).needed_bytes_per_s == check(1).needed_bytes_per_s == 10**9 * 10**12


@given(st.integers(1, 10**13), st.integers(0, 10**12), st.integers(0, 10**12))
def test_the_needed_bandwidth_would_do_and_no_less(compute: int, down: int, up: int) -> None:
    """With the stated bandwidth the condition holds; with one byte per second less it does not."""
    needed = check(compute, down, up).needed_bytes_per_s
    bytes_by_then = needed * compute // 10**12
    assert bytes_by_then >= max(down, up)
    assert (needed - 1) * compute < max(down, up) * 10**12 or not needed


@pytest.mark.parametrize("section", ["memoryx", "swarmx", "system"])
def test_the_narrowest_link_decides(section: str) -> None:
    """Whichever of the three links is narrowed."""
    key = {
        "memoryx": "bandwidth_bytes_per_s",
        "swarmx": "link_bandwidth_bytes_per_s",
        "system": "io_bandwidth_bytes_per_s",
    }[section]
    machine = MachineSpec.model_validate({section: {key: 1000}})
    assert narrowest_bytes_per_s(machine) == 1000
