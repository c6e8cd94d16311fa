"""The clock twin of SwarmX."""

from swarmx.clock import SwarmXClock
from wsc.timing.hardware import SwarmXSpec
from wsc.timing.timeline import Arrival

SPEC = SwarmXSpec(fan_out=4, link_bandwidth_bytes_per_s=10**9, hop_latency_ps=7)


def test_latency_grows_with_the_depth_of_the_tree() -> None:
    """1 to 4 systems hang below one switch, 5 to 16 below two, 2048 below six."""
    depths = {n: SwarmXClock(SPEC, n).latency_ps // 7 for n in (1, 4, 5, 16, 17, 2048)}
    assert depths == {1: 1, 4: 1, 5: 2, 16: 2, 17: 3, 2048: 6}


def test_time_on_the_link_does_not_depend_on_the_number_of_systems() -> None:
    """The broadcast reaches all at once and adding keeps up with the link."""
    for num_nodes in (1, 4, 64):
        swarmx = SwarmXClock(SPEC, num_nodes)
        for move in (swarmx.broadcast, swarmx.reduce):
            there = move(Arrival(0, 0), 1000)
            assert there.last_ps - there.first_ps == 1_000_000
            assert there.first_ps == swarmx.latency_ps


def test_both_directions_run_at_once() -> None:
    """Gradients do not hold up weights."""
    swarmx = SwarmXClock(SPEC, 4)
    assert swarmx.broadcast(Arrival(0, 0), 1000) == swarmx.reduce(Arrival(0, 0), 1000)
