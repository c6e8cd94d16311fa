"""The timing model of SwarmX."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.timing import SwarmXTiming
from waferstream.machine.hardware import JitterSpec, SwarmXSpec
from waferstream.machine.timeline import Arrival

SPEC = SwarmXSpec(fan_out=4, link_bandwidth_bytes_per_s=10**9, hop_latency_ps=7)


def test_latency_grows_with_tree_depth() -> None:
    """1 to 4 systems hang below one switch, 5 to 16 below two, 2048 below six."""
    depths = {n: SwarmXTiming(SPEC, n).latency_ps // 7 for n in (1, 4, 5, 16, 17, 2048)}
    assert depths == {1: 1, 4: 1, 5: 2, 16: 2, 17: 3, 2048: 6}


def test_link_time_is_independent_of_the_systems() -> None:
    """The broadcast reaches all at once and adding keeps up with the link."""
    for num_nodes in (1, 4, 64):
        swarmx = SwarmXTiming(SPEC, num_nodes)
        for move in (swarmx.broadcast, swarmx.reduce):
            there = move(Arrival(0, 0), 1000)
            assert there.last_ps - there.first_ps == 1_000_000
            assert there.first_ps == swarmx.latency_ps


def test_broadcast_and_reduce_run_at_the_same_time() -> None:
    """Gradients do not hold up weights."""
    swarmx = SwarmXTiming(SPEC, 4)
    assert swarmx.broadcast(Arrival(0, 0), 1000) == swarmx.reduce(Arrival(0, 0), 1000)


def test_latency_doubles_with_fan_out_two() -> None:
    """Sixteen systems hang below two switches of 1:4 or four of 1:2."""
    narrow = SPEC.model_copy(update={"fan_out": 2})
    assert SwarmXTiming(narrow, 16).latency_ps == 2 * SwarmXTiming(SPEC, 16).latency_ps
    assert SwarmXTiming(narrow, 2).latency_ps == SwarmXTiming(SPEC, 2).latency_ps


def test_slow_switch_slows_both_directions() -> None:
    """If it is part of the tree; 4 systems have one switch, 5 have three."""
    slow = JitterSpec(stragglers={"br-1": 3.0})
    for num_nodes, factor in ((4, 1), (5, 3)):
        swarmx = SwarmXTiming(SPEC, num_nodes, jitter=slow)
        for move in (swarmx.broadcast, swarmx.reduce):
            there = move(Arrival(0, 0), 999)
            assert there.last_ps - there.first_ps == pytest.approx(factor * 999_000, rel=1e-6)


@given(
    st.sampled_from(["link_bandwidth_bytes_per_s", "hop_latency_ps", "fan_out"]),
    st.integers(2, 10**12),
    st.integers(1, 100),
)
def test_fewer_resources_never_speed_up_a_broadcast(key: str, value: int, num_nodes: int) -> None:
    """Payloads arrive no sooner on a slower link, over a longer hop, or in a deeper tree."""
    value = 2 if key == "fan_out" else value
    few, many = (
        SwarmXTiming(SPEC.model_copy(update={key: amount}), num_nodes).broadcast(
            Arrival(0, 0), 1000
        )
        for amount in (value, 2 * value)
    )
    slow, fast = (many, few) if key == "hop_latency_ps" else (few, many)
    assert slow.first_ps >= fast.first_ps
    assert slow.last_ps >= fast.last_ps
