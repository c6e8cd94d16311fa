"""How many SwarmX nodes a cluster takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.inventory import inventory
from timing.hardware import SwarmXSpec
from wsc.core.errors import ConfigError

ONE_TO_FOUR = SwarmXSpec()
TWO_ONE_TO_TWO = SwarmXSpec(fan_out=2)


def test_a_node_does_one_1_to_4_or_two_1_to_2() -> None:
    """Six ports carry five or twice three; each of a system's 12 ports has a tree."""
    assert inventory(ONE_TO_FOUR, 4).switches_per_node == 1
    assert inventory(TWO_ONE_TO_TWO, 4).switches_per_node == 2
    for spec, nodes, depth in ((ONE_TO_FOUR, 12, 1), (TWO_ONE_TO_TWO, 18, 2)):
        found = inventory(spec, 4)
        assert (found.trees, found.num_nodes, found.depth) == (12, nodes, depth)
        assert found.latency_ps == depth * spec.hop_latency_ps


@given(st.sampled_from([ONE_TO_FOUR, TWO_ONE_TO_TWO]), st.integers(1, 2048))
def test_nodes_grow_with_the_systems_and_latency_with_their_logarithm(
    spec: SwarmXSpec, num_systems: int
) -> None:
    """A tree of fan-out f over N systems has at least (N - 1) / (f - 1) switches, at most 2 N."""
    found = inventory(spec, num_systems)
    assert (num_systems - 1) / (spec.fan_out - 1) <= found.switches_per_tree
    assert found.switches_per_tree <= 2 * num_systems
    assert spec.fan_out ** (found.depth - 1) <= max(1, num_systems - 1)
    assert num_systems <= spec.fan_out**found.depth


@given(st.integers(1, 100), st.integers(1, 500), st.integers(1, 100))
def test_a_wider_link_takes_more_trees_and_no_fewer_nodes(
    ports: int, extra_gigabytes: int, num_systems: int
) -> None:
    """As many trees as ports that the bandwidth fills."""
    narrow, wide = (
        inventory(SwarmXSpec(link_bandwidth_bytes_per_s=rate), num_systems)
        for rate in (ports * 12_500_000_000, ports * 12_500_000_000 + extra_gigabytes * 10**9)
    )
    assert narrow.trees == ports < wide.trees
    assert narrow.num_nodes < wide.num_nodes


def test_no_systems_need_no_answer() -> None:
    """A cluster has at least one system."""
    with pytest.raises(ConfigError, match="too small"):
        inventory(ONE_TO_FOUR, 0)
