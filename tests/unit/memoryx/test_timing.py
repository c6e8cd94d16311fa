"""The clock twin of MemoryX."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryx.optim.cost import UpdateCost
from memoryx.tiers import Holding, Tiers
from memoryx.timing import MemoryXTiming
from timing.hardware import EVEN, JitterSpec, MemoryXSpec
from timing.timeline import Arrival
from wsc.core.program import Bucket, TensorSpec

SPEC = MemoryXSpec(
    bandwidth_bytes_per_s=10**9,  # 1 byte per ns
    memory_bandwidth_bytes_per_s=10**12,  # 1 byte per ps
    flash_bandwidth_bytes_per_s=10**11,  # 1 byte per 10 ps
    flops_per_s=10**12,  # 1 operation per ps
    prefetch_buckets=2,
    drain_buckets=1,
)
ADAMW = UpdateCost(state_bytes=8, flops=15)
DRAM = Tiers()
FLASH = Tiers(Holding(40, 40), Holding(40, 40), Holding(80, 80))
HALF = Tiers(Holding(40, 20), Holding(40, 20), Holding(80, 40))


def clock(
    num_servers: int = 1, tiers: Tiers = DRAM, jitter: JitterSpec = EVEN, **changes: int
) -> MemoryXTiming:
    spec = SPEC.model_copy(update=changes)
    memoryx = MemoryXTiming(spec, num_servers, credit_latency_ps=50, jitter=jitter)
    memoryx.place_model(tiers)
    return memoryx


def bucket(name: str, num_elements: int = 10, server: int = 0, element_bytes: int = 2) -> Bucket:
    dtype = {2: "bfloat16", 4: "float32"}[element_bytes]
    return Bucket(0, 0, server, (TensorSpec(name, (num_elements,), dtype),))


def test_weights_leave_one_after_the_other_at_the_groups_bandwidth() -> None:
    """Buckets of different servers share the way out."""
    memoryx = clock(num_servers=2)
    assert memoryx.stream(bucket("a")) == Arrival(0, 20_000)
    assert memoryx.stream(bucket("b", server=1)) == Arrival(20_000, 40_000)


def test_weights_leave_no_faster_than_memory_reads_them() -> None:
    """40 bytes of a master are read for 20 that leave; twice the pace of the link is enough."""
    for rate, took_ps in ((2 * 10**9, 20_000), (10**9, 40_000)):
        memoryx = clock(memory_bandwidth_bytes_per_s=rate)
        assert memoryx.stream(bucket("a")) == Arrival(0, took_ps)
        assert memoryx.stream(bucket("b")) == Arrival(took_ps, 2 * took_ps)


def test_servers_read_side_by_side_each_at_its_share_of_the_memory() -> None:
    """Two servers take twice as long for a bucket, and the second one's is read when it leaves."""
    memoryx = clock(num_servers=2, memory_bandwidth_bytes_per_s=10**9)
    assert memoryx.stream(bucket("a")) == Arrival(0, 80_000)
    assert memoryx.stream(bucket("b", server=1)) == Arrival(80_000, 100_000)


def test_reading_ahead_does_not_wait_for_additions_and_updates() -> None:
    """Of other parameters; each has all of the memory bandwidth."""
    memoryx = clock(memory_bandwidth_bytes_per_s=10**9)
    train(memoryx)
    assert memoryx.free_ps > 80_000
    assert memoryx.stream(bucket("b")) == Arrival(40_000, 80_000)


def test_weights_run_ahead_only_as_far_as_their_servers_window() -> None:
    """The third bucket waits until the first was dropped and its credit is back."""
    memoryx = clock()
    first = bucket("a")
    memoryx.stream(first)
    memoryx.stream(bucket("b"))
    memoryx.release(first, dropped_ps=100_000)
    assert memoryx.stream(bucket("c")) == Arrival(100_050, 120_050)


def test_an_updated_parameter_streams_when_its_own_update_is_done() -> None:
    """Adding moves 12 bytes per element and updating 4 + 2 x (4 + 8); others need not wait."""
    memoryx = clock()
    gradient = bucket("a", element_bytes=4)
    memoryx.admit(gradient)
    added_ps = memoryx.collect(gradient, Arrival(0, 0))
    assert added_ps == 40_000 + 10 * 12
    memoryx.update(gradient, added_ps, ADAMW)
    assert memoryx.updated_ps(("a", "b")) == memoryx.free_ps == added_ps + 10 * 28
    assert memoryx.updated_ps(("b",)) == 0
    assert memoryx.stream(bucket("b")).first_ps == 0
    assert memoryx.stream(bucket("a")).first_ps == added_ps + 10 * 28


def test_a_gradient_is_admitted_when_the_one_before_was_added() -> None:
    """With a window of one gradient the credit comes back after adding and the way down."""
    memoryx = clock()
    gradient = bucket("a", element_bytes=4)
    assert memoryx.admit(gradient) == 0
    added_ps = memoryx.collect(gradient, Arrival(0, 0))
    assert memoryx.admit(gradient) == added_ps + 50


def test_servers_share_the_groups_memory_bandwidth() -> None:
    """Two servers add side by side, each at half the rate."""
    memoryx = clock(num_servers=2)
    added = []
    for server in (0, 1):
        gradient = bucket("a", server=server, element_bytes=4)
        memoryx.admit(gradient)
        added.append(memoryx.collect(gradient, Arrival(0, 0)))
    assert added == [40_000 + 240, 80_000 + 240]


def train(memoryx: MemoryXTiming, server: int = 0) -> tuple[Arrival, int, int]:
    """Stream, collect and update one bucket: (leaves, added at, updated at)."""
    weight, gradient = bucket("a", server=server), bucket("a", server=server, element_bytes=4)
    sent = memoryx.stream(weight)
    memoryx.admit(gradient)
    added_ps = memoryx.collect(gradient, Arrival(0, 0))
    memoryx.update(gradient, added_ps, ADAMW)
    return sent, added_ps, memoryx.updated_ps(("a",))


def test_an_update_takes_the_longer_of_moving_and_computing() -> None:
    """10 elements of AdamW move 280 bytes and do 150 operations."""
    for flops_per_s, took_ps in ((10**12, 280), (10**11, 1500)):
        _, added_ps, updated_ps = train(clock(flops_per_s=flops_per_s))
        assert updated_ps - added_ps == took_ps


def test_a_model_lies_in_dram_until_told_otherwise() -> None:
    """Nothing passes flash."""
    assert train(MemoryXTiming(SPEC, 1, credit_latency_ps=50)) == train(clock(tiers=DRAM))


def test_what_lies_in_flash_is_read_before_it_streams() -> None:
    """40 bytes of masters take 400 ps of flash; the slower way out hides all but the first."""
    slow = clock(tiers=FLASH, flash_bandwidth_bytes_per_s=10**9)
    assert clock(tiers=FLASH).stream(bucket("a")) == clock().stream(bucket("a"))
    assert slow.stream(bucket("a")) == Arrival(0, 40_000)  # 20 bytes leave as slowly as 40 are read
    assert slow.stream(bucket("b")) == Arrival(40_000, 80_000)


def test_what_lies_in_flash_passes_memory() -> None:
    """Of slow memory it takes as much time as what lies there, for flash feeds it as it reads."""
    slow = {"memory_bandwidth_bytes_per_s": 10**9}
    assert clock(tiers=FLASH, **slow).stream(bucket("a")) == clock(**slow).stream(bucket("a"))


def test_reading_ahead_waits_for_the_update_of_its_own_parameter() -> None:
    """What streams after an update is read from flash after it; other parameters are not."""
    memoryx = clock(tiers=FLASH)
    _, _, updated_ps = train(memoryx)
    assert memoryx.stream(bucket("b")).first_ps < updated_ps
    memoryx.release(bucket("a"), 0)
    assert memoryx.stream(bucket("a")).first_ps >= updated_ps


def test_an_update_passes_flash_twice() -> None:
    """Sums are read, masters and state read and written: 40 + 2 x (40 + 80) bytes of flash."""
    _, added_ps, updated_ps = train(clock(tiers=FLASH))
    assert added_ps == 40_000 + 2 * 40 * 10
    assert updated_ps - added_ps == (40 + 2 * 120) * 10


def test_half_in_flash_costs_half_of_it() -> None:
    """Tensors are split alike between DRAM and flash."""
    _, added_ps, updated_ps = train(clock(tiers=HALF))
    assert updated_ps - added_ps == (40 + 2 * 120) * 10 // 2


def test_servers_share_the_groups_flash_and_processors() -> None:
    """Each of two servers reads, writes and computes at half the rate."""
    for kind in ("flash_bandwidth_bytes_per_s", "flops_per_s"):
        slow = {kind: 10**10}
        one, two = train(clock(1, FLASH, **slow)), train(clock(2, FLASH, **slow), server=1)
        assert two[2] - two[1] == 2 * (one[2] - one[1])


def test_a_slow_server_slows_its_own_work_and_everybodys_stream() -> None:
    """Its memory is slower; and since a layer waits for all servers, so is the way out and in."""
    slow = JitterSpec(stragglers={"wgt-1": 2.0})
    for server, factor in ((0, 1), (1, 2)):
        memoryx = clock(2, jitter=slow)
        sent, added_ps, updated_ps = train(memoryx, server)
        assert sent == Arrival(0, 40_000)
        assert updated_ps - added_ps == factor * 2 * 280
    assert train(clock(1, jitter=slow)) == train(clock(1))


RATES = [
    "bandwidth_bytes_per_s",
    "memory_bandwidth_bytes_per_s",
    "flash_bandwidth_bytes_per_s",
    "flops_per_s",
    "prefetch_buckets",
]


@given(
    st.sampled_from(RATES),
    st.integers(1, 10**12),
    st.sampled_from([DRAM, HALF, FLASH]),
    st.integers(1, 3),
)
def test_half_of_any_rate_never_speeds_up(
    rate: str, value: int, tiers: Tiers, num_servers: int
) -> None:
    """Streams leave, sums are there and updates end no sooner with half of a resource."""
    value = min(value, 8) if rate == "prefetch_buckets" else value
    full = train(clock(num_servers, tiers, **{rate: 2 * value}))
    half = train(clock(num_servers, tiers, **{rate: value}))
    assert all(slow >= fast for slow, fast in zip(half, full, strict=True))


@pytest.mark.parametrize("rate", RATES[:4])
def test_each_rate_moves_the_clock_where_it_is_the_bottleneck(rate: str) -> None:
    """One number of cluster.yaml, made a thousand times smaller, is seen."""
    slow = {rate: getattr(SPEC, rate) // 1000}
    assert train(clock(tiers=FLASH, **slow)) > train(clock(tiers=FLASH))
