"""The clock twin of MemoryX."""

from memoryx.clock import MemoryXClock
from wsc.core.program import Shard
from wsc.timing.hardware import MemoryXSpec
from wsc.timing.timeline import Arrival

SPEC = MemoryXSpec(
    bandwidth_bytes_per_s=10**9,  # 1 byte per ns
    memory_bandwidth_bytes_per_s=10**12,  # 1 byte per ps
    prefetch_shards=2,
    drain_shards=1,
)


def clock(num_servers: int = 1) -> MemoryXClock:
    return MemoryXClock(SPEC, num_servers, credit_latency_ps=50)


def shard(name: str, num_elements: int = 10, server: int = 0, element_bytes: int = 2) -> Shard:
    return Shard(0, 0, server, (name,), num_elements, num_elements * element_bytes)


def test_weights_leave_one_after_the_other_at_the_groups_bandwidth() -> None:
    """Shards of different servers share the way out."""
    memoryx = clock(num_servers=2)
    assert memoryx.stream(shard("a")) == Arrival(0, 20_000)
    assert memoryx.stream(shard("b", server=1)) == Arrival(20_000, 40_000)


def test_weights_run_ahead_only_as_far_as_their_servers_window() -> None:
    """The third shard waits until the first was dropped and its credit is back."""
    memoryx = clock()
    first = shard("a")
    memoryx.stream(first)
    memoryx.stream(shard("b"))
    memoryx.release(first, dropped_ps=100_000)
    assert memoryx.stream(shard("c")) == Arrival(100_050, 120_050)


def test_an_updated_parameter_streams_when_its_own_update_is_done() -> None:
    """Adding moves 12 bytes per element and updating 4 + 2 x (4 + 8); others need not wait."""
    memoryx = clock()
    gradient = shard("a", element_bytes=4)
    memoryx.admit(gradient)
    added_ps = memoryx.collect(gradient, Arrival(0, 0))
    assert added_ps == 40_000 + 10 * 12
    memoryx.update(gradient, added_ps, 8)
    assert memoryx.updated_ps(("a", "b")) == memoryx.free_ps == added_ps + 10 * 28
    assert memoryx.updated_ps(("b",)) == 0
    assert memoryx.stream(shard("b")).first_ps == 0
    assert memoryx.stream(shard("a")).first_ps == added_ps + 10 * 28


def test_a_gradient_is_admitted_when_the_one_before_was_added() -> None:
    """With a window of one gradient the credit comes back after adding and the way down."""
    memoryx = clock()
    gradient = shard("a", element_bytes=4)
    assert memoryx.admit(gradient) == 0
    added_ps = memoryx.collect(gradient, Arrival(0, 0))
    assert memoryx.admit(gradient) == added_ps + 50


def test_servers_share_the_groups_memory_bandwidth() -> None:
    """Two servers add side by side, each at half the rate."""
    memoryx = clock(num_servers=2)
    added = []
    for server in (0, 1):
        gradient = shard("a", server=server, element_bytes=4)
        memoryx.admit(gradient)
        added.append(memoryx.collect(gradient, Arrival(0, 0)))
    assert added == [40_000 + 240, 80_000 + 240]
