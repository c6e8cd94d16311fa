"""The timing model of MemoryX."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryx.optim.cost import UpdateCost
from memoryx.tiers import Holding, Tiers
from memoryx.timing import MemoryXTiming
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.stream_plan import Bucket
from waferstream.machine.hardware import EVEN, JitterSpec, MemoryXSpec
from waferstream.machine.timeline import Arrival

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


def memoryx_timing(
    num_servers: int = 1, tiers: Tiers = DRAM, jitter: JitterSpec = EVEN, **changes: Any
) -> MemoryXTiming:
    spec = SPEC.model_copy(update=changes)
    memoryx = MemoryXTiming(spec, num_servers, credit_latency_ps=50, jitter=jitter)
    memoryx.place_model(tiers)
    return memoryx


def bucket(name: str, num_elements: int = 10, server: int = 0, element_bytes: int = 2) -> Bucket:
    dtype = {2: "bfloat16", 4: "float32"}[element_bytes]
    return Bucket(0, 0, server, (TensorSpec(name, (num_elements,), dtype),))


def test_stream_shares_the_bandwidth_of_the_group() -> None:
    """Buckets of different servers share the outgoing wire."""
    memoryx = memoryx_timing(num_servers=2)
    assert memoryx.stream(bucket("a")) == Arrival(0, 20_000)
    assert memoryx.stream(bucket("b", server=1)) == Arrival(20_000, 40_000)


def test_stream_is_limited_by_memory_bandwidth() -> None:
    """40 bytes of a master are read for 20 that leave; twice the rate of the link is enough."""
    for rate, took_ps in ((2 * 10**9, 20_000), (10**9, 40_000)):
        memoryx = memoryx_timing(memory_bandwidth_bytes_per_s=rate)
        assert memoryx.stream(bucket("a")) == Arrival(0, took_ps)
        assert memoryx.stream(bucket("b")) == Arrival(took_ps, 2 * took_ps)


def test_servers_read_at_their_share_of_the_memory() -> None:
    """Two servers take twice as long for a bucket, and the second one's is read when it leaves."""
    memoryx = memoryx_timing(num_servers=2, memory_bandwidth_bytes_per_s=10**9)
    assert memoryx.stream(bucket("a")) == Arrival(0, 80_000)
    assert memoryx.stream(bucket("b", server=1)) == Arrival(80_000, 100_000)


def test_stream_does_not_wait_for_other_updates() -> None:
    """Of other parameters; each has all of the memory bandwidth."""
    memoryx = memoryx_timing(memory_bandwidth_bytes_per_s=10**9)
    train(memoryx)
    assert memoryx.free_ps > 80_000
    assert memoryx.stream(bucket("b")) == Arrival(40_000, 80_000)


def test_stream_waits_for_credits_of_the_window() -> None:
    """The third bucket waits until the first was dropped and its credit is back."""
    memoryx = memoryx_timing()
    first = bucket("a")
    memoryx.stream(first)
    memoryx.stream(bucket("b"))
    memoryx.release(first, dropped_ps=100_000)
    assert memoryx.stream(bucket("c")) == Arrival(100_050, 120_050)


def test_stream_waits_for_the_update_of_its_parameters() -> None:
    """Adding moves 12 bytes per element and updating 4 + 2 x (4 + 8); others need not wait."""
    memoryx = memoryx_timing()
    gradient = bucket("a", element_bytes=4)
    memoryx.admit(gradient)
    added_ps = memoryx.collect(gradient, Arrival(0, 0))
    assert added_ps == 40_000 + 10 * 12
    memoryx.update(gradient, added_ps, ADAMW)
    assert memoryx.updated_ps(("a", "b")) == memoryx.free_ps == added_ps + 10 * 28
    assert memoryx.updated_ps(("b",)) == 0
    assert memoryx.stream(bucket("b")).first_ps == 0
    assert memoryx.stream(bucket("a")).first_ps == added_ps + 10 * 28


def test_average_streams_after_the_update_of_its_source() -> None:
    """It changes with the gradients of its source."""
    memoryx = memoryx_timing()
    memoryx.serve(["a", "average", "b"], ())
    gradients = replace(bucket("a"), averages=("average",))
    memoryx.update(gradients, 0, ADAMW)
    done_ps = memoryx.updated_ps(("a",))
    assert memoryx.updated_ps(("average",)) == done_ps > 0
    assert memoryx.updated_ps(("b",)) == 0
    memoryx.update_like(gradients, gradients, 7)
    assert memoryx.updated_ps(("average",)) == done_ps + 7


def test_admit_waits_for_the_credit_of_the_gradient_before() -> None:
    """With a window of one gradient the credit returns after adding and a latency."""
    memoryx = memoryx_timing()
    gradient = bucket("a", element_bytes=4)
    assert memoryx.admit(gradient) == 0
    added_ps = memoryx.collect(gradient, Arrival(0, 0))
    assert memoryx.admit(gradient) == added_ps + 50


def test_collect_uses_the_server_share_of_the_memory() -> None:
    """Two servers add side by side, each at half the rate."""
    memoryx = memoryx_timing(num_servers=2)
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


def test_update_takes_the_longer_of_moving_and_computing() -> None:
    """10 elements of AdamW move 280 bytes and do 150 operations."""
    for flops_per_s, took_ps in ((10**12, 280), (10**11, 1500)):
        _, added_ps, updated_ps = train(memoryx_timing(flops_per_s=flops_per_s))
        assert updated_ps - added_ps == took_ps


def test_model_is_in_dram_by_default() -> None:
    """Nothing passes flash."""
    assert train(MemoryXTiming(SPEC, 1, credit_latency_ps=50)) == train(memoryx_timing(tiers=DRAM))


def test_stream_reads_flash_before_sending() -> None:
    """40 bytes of masters take 400 ps of flash; the slower outgoing wire hides all but the first."""
    slow = memoryx_timing(tiers=FLASH, flash_bandwidth_bytes_per_s=10**9)
    assert memoryx_timing(tiers=FLASH).stream(bucket("a")) == memoryx_timing().stream(bucket("a"))
    assert slow.stream(bucket("a")) == Arrival(0, 40_000)  # 20 bytes leave as slowly as 40 are read
    assert slow.stream(bucket("b")) == Arrival(40_000, 80_000)


def test_flash_reads_pass_through_memory() -> None:
    """With slow memory it takes as long as data in DRAM: flash feeds memory while it reads."""
    slow: dict[str, Any] = {"memory_bandwidth_bytes_per_s": 10**9}
    assert memoryx_timing(tiers=FLASH, **slow).stream(bucket("a")) == memoryx_timing(**slow).stream(
        bucket("a")
    )


def test_flash_reads_wait_for_the_update_of_the_parameter() -> None:
    """What streams after an update is read from flash after it; other parameters are not."""
    memoryx = memoryx_timing(tiers=FLASH)
    _, _, updated_ps = train(memoryx)
    assert memoryx.stream(bucket("b")).first_ps < updated_ps
    memoryx.release(bucket("a"), 0)
    assert memoryx.stream(bucket("a")).first_ps >= updated_ps


def test_update_reads_and_writes_flash() -> None:
    """Sums are read, masters and state read and written: 40 + 2 x (40 + 80) bytes of flash."""
    _, added_ps, updated_ps = train(memoryx_timing(tiers=FLASH))
    assert added_ps == 40_000 + 2 * 40 * 10
    assert updated_ps - added_ps == (40 + 2 * 120) * 10


def test_half_in_flash_costs_half_of_the_flash_time() -> None:
    """Tensors are split alike between DRAM and flash."""
    _, added_ps, updated_ps = train(memoryx_timing(tiers=HALF))
    assert updated_ps - added_ps == (40 + 2 * 120) * 10 // 2


def test_update_uses_the_server_share_of_flash_and_flops() -> None:
    """Each of two servers reads, writes and computes at half the rate."""
    for kind in ("flash_bandwidth_bytes_per_s", "flops_per_s"):
        slow: dict[str, Any] = {kind: 10**10}
        one, two = (
            train(memoryx_timing(1, FLASH, **slow)),
            train(memoryx_timing(2, FLASH, **slow), server=1),
        )
        assert two[2] - two[1] == 2 * (one[2] - one[1])


def test_slow_server_slows_the_stream_of_all() -> None:
    """Its memory is slower; and since a layer waits for all servers, both wires are slower, too."""
    slow = JitterSpec(stragglers={"wgt-1": 2.0})
    for server, factor in ((0, 1), (1, 2)):
        memoryx = memoryx_timing(2, jitter=slow)
        sent, added_ps, updated_ps = train(memoryx, server)
        assert sent == Arrival(0, 40_000)
        assert updated_ps - added_ps == factor * 2 * 280
    assert train(memoryx_timing(1, jitter=slow)) == train(memoryx_timing(1))


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
    of_full: dict[str, Any] = {rate: 2 * value}
    of_half: dict[str, Any] = {rate: value}
    full = train(memoryx_timing(num_servers, tiers, **of_full))
    half = train(memoryx_timing(num_servers, tiers, **of_half))
    ends: Any = zip(half, full, strict=True)
    assert all(slow >= fast for slow, fast in ends)


@pytest.mark.parametrize("rate", RATES[:4])
def test_each_rate_matters_where_it_is_the_bottleneck(rate: str) -> None:
    """One number of cluster.yaml, made a thousand times smaller, is seen."""
    slow = {rate: getattr(SPEC, rate) // 1000}
    assert train(memoryx_timing(tiers=FLASH, **slow)) > train(memoryx_timing(tiers=FLASH))
