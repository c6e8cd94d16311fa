"""The timing model of the CS systems."""

import pytest

from csnode.timing import NodeTiming
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.stream_plan import Bucket
from waferstream.machine.attribution import Attribution
from waferstream.machine.cost import SegmentCost
from waferstream.machine.hardware import CS2, ActivationSpec, InputSpec, MachineSpec, override
from waferstream.machine.sram import PagedBytes
from waferstream.machine.timeline import Arrival

BUCKET = Bucket(0, 0, 0, (TensorSpec("w", (10,), "bfloat16"),))
COST = SegmentCost(compute_ps=1000, overhead_ps=100)
INPUT = InputSpec(bandwidth_bytes_per_s=10**9, latency_ps=0, prefetch_batches=2)


@pytest.fixture
def node() -> NodeTiming:
    """A system that takes in and sends out one byte per ns, with a prefetch window of two batches."""
    wafer = override(CS2, io_bandwidth_bytes_per_s=10**9)
    return NodeTiming(MachineSpec(system=wafer, input=INPUT))


def test_run_starts_with_the_first_byte_and_ends_after_the_last(node: NodeTiming) -> None:
    """Arithmetic runs while weights come in; the rest of the stream is waited for."""
    node.receive_weights(BUCKET, Arrival(500, 20_500), updated_ps=200)
    node.run(COST)
    assert node.free_ps == 20_500
    assert node.attribution() == Attribution(
        reduce=200, weights=300 + 20_500 - 1600, compute=1000, overhead=100
    )


def test_weights_that_arrive_in_time_cost_nothing(node: NodeTiming) -> None:
    """A bucket that was there before the last segment ended is not waited for."""
    node.idle_until("idle", 50_000)
    node.receive_weights(BUCKET, Arrival(0, 0), updated_ps=0)
    node.run(COST)
    assert node.free_ps == 51_100
    assert node.attribution().weights == 0


def test_late_update_is_charged_to_reduce(node: NodeTiming) -> None:
    """The later bucket of a segment delays its end, and the cause is its update."""
    node.receive_weights(BUCKET, Arrival(0, 0), updated_ps=0)
    node.receive_weights(BUCKET, Arrival(60_000, 80_000), updated_ps=60_000)
    node.run(COST)
    assert node.free_ps == 80_000
    assert node.attribution().reduce == 60_000 - 20_000  # from the first bucket's last byte on
    assert node.attribution().weights == (20_000 - 1100) + 20_000


def test_first_segment_waits_for_the_whole_micro_batch(node: NodeTiming) -> None:
    """Unlike weights, inputs are used whole."""
    node.receive_batch(3, load_ps=1)
    node.run(COST)
    assert node.attribution() == Attribution(input=3000, compute=1000, overhead=100)


def test_slow_loader_holds_the_input_wire() -> None:
    """Samples leave as they are loaded; the last one arrives a latency after it was."""
    node = NodeTiming(MachineSpec(input=INPUT.model_copy(update={"latency_ps": 70})))
    node.receive_batch(3, load_ps=8 * 10**6)
    node.run(COST)
    assert node.attribution().input == 8 * 10**6 + 70


def test_loading_overlaps_with_computing() -> None:
    """A loader as fast as the wafer is waited for once."""
    node = NodeTiming(MachineSpec(input=INPUT))
    for _ in range(4):
        node.receive_batch(0, load_ps=1100)
        node.run(COST)
        node.release_batch()
    assert node.attribution().input == 1100


def test_run_charges_slowdown_to_straggler(node: NodeTiming) -> None:
    """Its time counts for all; what an even system would have taken stays compute and overhead."""
    node.run(COST, factor=1.5)
    assert node.free_ps == 1650
    assert node.attribution() == Attribution(compute=1000, overhead=100, straggler=550)


def test_short_segment_computes_for_less_time(node: NodeTiming) -> None:
    """Jitter may shorten it on a single system; then nobody waits for a straggler."""
    node.run(COST, factor=0.5)
    assert node.attribution() == Attribution(compute=500, overhead=50)


def test_inputs_prefetch_up_to_the_window(node: NodeTiming) -> None:
    """The second micro-batch arrives during the first; the third waits for the first to end."""
    for _ in range(3):
        node.receive_batch(1, load_ps=1)
        node.run(SegmentCost(5000, 0))
        node.release_batch()
    assert node.free_ps == 1000 + 3 * 5000
    assert node.attribution().input == 1000


def test_send_gradient_starts_at_the_end_of_the_segment(node: NodeTiming) -> None:
    """They go out one after the other while the wafer computes on."""
    node.run(COST)
    assert node.send_gradient(BUCKET) == Arrival(1100, 21_100)
    node.run(COST)
    assert node.send_gradient(BUCKET) == Arrival(21_100, 41_100)
    assert node.free_ps == 2200


def test_forget_clears_charges_but_not_time(node: NodeTiming) -> None:
    """Time continues from its value."""
    node.run(COST)
    node.forget()
    assert node.attribution() == Attribution()
    assert node.free_ps == 1100


def test_activations_leave_while_the_next_segment_runs(node: NodeTiming) -> None:
    """One byte takes a nanosecond; the segment after the next one waits for the rest."""
    node.run(COST, paged=PagedBytes(sent_bytes=5))
    node.run(COST)
    node.run(COST)
    assert node.attribution() == Attribution(activations=5_000 - 1_100, compute=3_000, overhead=300)


def test_activations_come_back_while_the_segment_before_runs(node: NodeTiming) -> None:
    """From its start on, so that they have no room for longer than that."""
    node.idle_until("idle", 10_000)
    node.run(COST)
    node.run(COST, paged=PagedBytes(fetched_bytes=4))
    assert node.attribution().activations == 4_000 - 1_100
    assert node.free_ps == 10_000 + 4_000 + 1_100


def test_few_servers_send_activations_slowly() -> None:
    """Half the rate of the system's link."""
    wafer = override(CS2, io_bandwidth_bytes_per_s=10**9)
    slow = ActivationSpec(servers=1, link_bandwidth_bytes_per_s=10**9 // 2)
    node = NodeTiming(MachineSpec(system=wafer, activations=slow))
    node.run(COST)
    node.run(COST, paged=PagedBytes(fetched_bytes=4))
    assert node.attribution().activations == 8_000 - 1_100
