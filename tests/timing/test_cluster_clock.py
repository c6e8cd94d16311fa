"""The whole emulated cluster on small programs written by hand."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cluster_timing import ClusterTiming, prediction
from simulator.costed_program import CostedProgram
from tests.support.clocks import (
    ADAMW,
    GIGA,
    MEGA,
    TERA,
    machines,
    make_clock,
    make_machine,
    make_program,
    programs,
    run,
    shapes,
)
from timing.attribution import samples_per_s
from timing.cost import segment_costs
from timing.hardware import MachineSpec
from wsc.core.errors import ApplianceResourceExhausted
from wsc.core.program import BYTES_PER_ELEMENT, Program, plan_streams
from wsc.core.units import PS_PER_MS, PS_PER_US, format_rate


@given(programs, shapes, machines)
@settings(max_examples=60, deadline=None)
def test_attributions_sum_to_the_step_time_and_steps_follow_each_other(
    program: Program, shape: dict[str, Any], sections: dict[str, Any]
) -> None:
    """Every picosecond of every node's step has one cause, none is negative, none is left out."""
    timings = run(make_clock(program, make_machine(**sections), **shape), steps=3)
    assert timings[0].start_ps == 0
    for previous, timing in pairwise(timings):
        assert timing.start_ps == previous.end_ps
    for timing in timings:
        for attribution in (timing.attribution, timing.spare):
            assert attribution.total_ps == timing.duration_ps
            assert min(attribution.shares().values()) >= 0
        assert timing.attribution.idle == 0
        assert 1 <= timing.num_busy <= shape["num_nodes"]


BANDWIDTHS = [
    ("system", "io_bandwidth_bytes_per_s"),
    ("memoryx", "bandwidth_bytes_per_s"),
    ("memoryx", "memory_bandwidth_bytes_per_s"),
    ("memoryx", "flash_bandwidth_bytes_per_s"),
    ("memoryx", "flops_per_s"),
    ("swarmx", "link_bandwidth_bytes_per_s"),
    ("input", "bandwidth_bytes_per_s"),
    ("input", "workers_per_system"),
    ("memoryx", "prefetch_buckets"),
    ("memoryx", "drain_buckets"),
    ("system", "clock_hz"),
]


@pytest.mark.parametrize(("section", "key"), BANDWIDTHS)
@given(program=programs, shape=shapes, sections=machines)
@settings(max_examples=12, deadline=None)
def test_twice_as_much_of_any_resource_never_slows_a_run(
    section: str, key: str, program: Program, shape: dict[str, Any], sections: dict[str, Any]
) -> None:
    """From half to once to twice any bandwidth, window or clock, no run ends later."""
    value = getattr(getattr(make_machine(**sections), section), key)
    ends = []
    for amount in (max(1, value // 2), value, 2 * value):
        changed = {**sections, section: {**sections.get(section, {}), key: amount}}
        ends.append(run(make_clock(program, make_machine(**changed), **shape))[-1].end_ps)
    assert ends == sorted(ends, reverse=True)


@given(st.integers(1, 40), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_more_systems_never_slow_a_compute_bound_batch(micro_batches: int, num_nodes: int) -> None:
    """With much to compute and little to stream, one more system does not lengthen a step."""
    program = make_program(elements=1000, flops=100 * TERA, micro_batches=micro_batches)
    machine = make_machine(swarmx={"hop_latency_ps": 0})
    durations = [
        run(make_clock(program, machine, num_nodes=nodes))[-1].duration_ps
        for nodes in (num_nodes, num_nodes + 1)
    ]
    assert durations[1] <= durations[0]


def test_a_compute_bound_step_takes_the_time_of_its_arithmetic() -> None:
    """Where arithmetic dwarfs the stream, a step is its rounds' flops over the sustained rate."""
    machine = make_machine()
    program = make_program(layers=4, elements=1000, flops=100 * TERA, micro_batches=8)
    timing = run(make_clock(program, machine, num_nodes=4))[-1]
    one_round_ps = sum(cost.total_ps for cost in segment_costs(program, machine.system))
    assert timing.duration_ps == pytest.approx(2 * one_round_ps, rel=0.001)
    assert timing.attribution.shares()["compute"] > 0.998


def test_a_stream_bound_step_takes_the_time_of_its_bytes_and_waits_for_weights() -> None:
    """Where the stream dwarfs arithmetic, a step lasts as long as its weights are on the wire."""
    program = make_program(layers=8, elements=100 * MEGA, flops=GIGA, micro_batches=8)
    timing = run(make_clock(program))[-1]
    weight_bytes = 8 * 2 * 8 * 100 * MEGA * 2  # 8 rounds, down twice, 8 layers, bf16
    assert timing.duration_ps / 1e12 == pytest.approx(weight_bytes / 150e9, rel=0.1)
    assert timing.attribution.shares()["weights"] > 0.5


def machine_with_memory(bytes_per_s: int) -> MachineSpec:
    return make_machine(memoryx={"memory_bandwidth_bytes_per_s": bytes_per_s})


def test_slow_memory_shows_as_waiting_for_weights() -> None:
    """Where reading masters dwarfs the rest, their bytes over its bandwidth are the step."""
    program = make_program(mode="eval", layers=8, elements=100 * MEGA, flops=GIGA)
    clock = make_clock(program, machine_with_memory(100 * GIGA), record=True)
    timing = run(clock, mode="eval")[-1]
    master_bytes = 8 * 8 * 100 * MEGA * 4  # 8 rounds, 8 layers, fp32
    assert timing.duration_ps / 1e12 == pytest.approx(master_bytes / 100e9, rel=0.01)
    assert timing.attribution.shares()["weights"] > 0.9
    reading_ps = sum(
        work.end_ps - work.start_ps
        for work in clock.occupancies
        if work.timeline == "MemoryX memory out 0"
    )
    assert reading_ps > 0.99 * timing.end_ps


@pytest.mark.parametrize("stream_dtype", ["bfloat16", "float32"])
def test_memory_that_reads_as_fast_as_the_link_sends_costs_nothing(stream_dtype: str) -> None:
    """A step that is bound by its stream takes as long as with memory without end, and no less."""
    program = replace(make_program(mode="eval", elements=MEGA, flops=0), stream_dtype=stream_dtype)
    link = make_machine().memoryx.bandwidth_bytes_per_s
    enough = link * 4 // BYTES_PER_ELEMENT[stream_dtype]
    steps = [
        run(make_clock(program, machine_with_memory(rate)), mode="eval")
        for rate in (enough * 9 // 10, enough, 1000 * enough)
    ]
    assert steps[0][-1].duration_ps > steps[1][-1].duration_ps
    assert steps[1] == steps[2]


def test_a_slow_input_shows_as_waiting_for_input() -> None:
    """A batch that comes in slower than it is computed is named as the cause."""
    machine = make_machine(input={"bandwidth_bytes_per_s": 10_000})
    timing = run(make_clock(make_program(elements=1000), machine))[-1]
    assert timing.attribution.shares()["input"] > 0.9
    assert timing.duration_ps == pytest.approx(8 * 400 * PS_PER_MS, rel=0.01)


def test_a_slow_loader_shows_as_waiting_for_input() -> None:
    """Four samples per micro-batch from workers that take 100 ms for each."""
    program = make_program(elements=1000)
    for workers in (1, 2):
        machine = make_machine(
            input={"other": {"sample_ps": 100 * PS_PER_MS}, "workers_per_system": workers}
        )
        timing = run(make_clock(program, machine))[-1]
        assert timing.attribution.shares()["input"] > 0.9
        assert timing.duration_ps == pytest.approx(8 * 400 * PS_PER_MS / workers, rel=0.01)


def test_a_model_that_outgrows_dram_streams_at_the_pace_of_flash() -> None:
    """In evaluation, masters of 4 bytes come from flash once a round; nothing takes longer."""
    program = make_program(mode="eval", layers=8, elements=100 * MEGA, flops=GIGA)
    flash = {"dram_bytes": 1, "flash_bytes": TERA, "flash_bandwidth_bytes_per_s": 50 * GIGA}
    timing = run(make_clock(program, make_machine(memoryx=flash)), mode="eval")[-1]
    read_bytes = 8 * 8 * 100 * MEGA * 4
    assert timing.duration_ps / 1e12 == pytest.approx(read_bytes / 50e9, rel=0.01)


def test_a_model_that_does_not_fit_memoryx_is_refused_with_numbers() -> None:
    """Three layers of a million parameters take 16 bytes each with the moments of Adam."""
    with pytest.raises(ApplianceResourceExhausted, match=r"45\.8 MiB(.|\n)*state 22\.9 MiB"):
        make_clock(make_program(), make_machine(memoryx={"dram_bytes": 40 * MEGA}))


def test_a_rule_with_more_arithmetic_takes_longer_where_processors_are_slow() -> None:
    """On slow processors the update costs what it computes, not what it moves."""
    machine = make_machine(memoryx={"flops_per_s": 10 * GIGA})
    waits = []
    for cost in (ADAMW, ADAMW._replace(flops=30)):
        program, clock = make_program(micro_batches=1), ClusterTiming(machine, 1, 1)
        clock.follow(
            CostedProgram.of(program, plan_streams(program, 1), clock.machine, update=cost)
        )
        waits.append(run(clock)[-1].attribution.reduce)
    assert waits[1] > 1.5 * waits[0]


def test_a_slow_system_holds_up_every_round_it_takes_part_in() -> None:
    """9 micro-batches on 8 systems, the last of them slow: it works in the first round only."""
    program = make_program(elements=1000, flops=100 * TERA, micro_batches=9)
    steps = [
        run(make_clock(program, make_machine(jitter={"stragglers": slow}), num_nodes=8))[-1]
        for slow in ({}, {"csx-7": 1.5}, {"csx-8": 1.5})
    ]
    even, slow, absent = steps
    assert absent == even
    assert slow.attribution.straggler == pytest.approx(0.5 * even.duration_ps / 2, rel=0.01)
    assert slow.attribution.compute == even.attribution.compute
    assert slow.spare.straggler == slow.attribution.straggler


def test_jitter_costs_more_the_more_systems_wait_for_each_other() -> None:
    """The same seed gives the same run; the slowest of 64 is slower than the slowest of 4."""
    program = make_program(elements=1000, flops=100 * TERA, micro_batches=64)

    def end_ps(num_nodes: int, seed: int) -> int:
        machine = make_machine(jitter={"seed": seed, "kernel_sigma": 0.1, "transfer_sigma": 0.1})
        few = replace(program, num_micro_batches=num_nodes)
        return run(make_clock(few, machine, num_nodes=num_nodes))[-1].end_ps

    assert end_ps(4, 1) == end_ps(4, 1) != end_ps(4, 2)
    assert end_ps(64, 1) > 1.05 * end_ps(4, 1)


def test_slow_links_stretch_the_stream() -> None:
    """Where the stream is what takes time, transfers that vary lengthen the step."""
    program = make_program(layers=8, elements=100 * MEGA, flops=GIGA, micro_batches=8)
    even, varied = (
        run(make_clock(program, make_machine(jitter={"transfer_sigma": sigma}), num_nodes=8))[-1]
        for sigma in (0.0, 0.2)
    )
    assert varied.duration_ps > 1.1 * even.duration_ps
    assert varied.attribution.straggler == 0


def test_a_slow_optimizer_shows_as_waiting_for_the_reduce() -> None:
    """If MemoryX takes long to sum and update, systems wait at the end of the step."""
    machine = machine_with_memory(10 * GIGA)
    timing = run(make_clock(make_program(), machine, num_nodes=8))[-1]
    assert timing.attribution.shares()["reduce"] > 0.5


def test_updating_each_layer_at_once_hides_what_clipping_by_norm_exposes() -> None:
    """Updates overlap the backward pass unless they must wait for the norm of all gradients."""
    program = make_program(layers=8, elements=10 * MEGA, flops=5 * TERA, micro_batches=1)
    machine = machine_with_memory(500 * GIGA)
    overlapped, clipped = (
        run(make_clock(program, machine, clips_by_norm=clips))[-1] for clips in (False, True)
    )
    assert clipped.attribution.reduce > 2 * overlapped.attribution.reduce
    assert clipped.attribution.compute == overlapped.attribution.compute


def test_the_update_is_exposed_only_at_the_boundary_between_steps() -> None:
    """Between rounds weights stream ahead; between steps the first layer waits for its update."""
    program = make_program(elements=10 * MEGA, flops=10 * TERA, micro_batches=4)
    one_step_of_four = run(make_clock(program))[-1]
    four_steps_of_one = run(make_clock(make_program(
        elements=10 * MEGA, flops=10 * TERA, micro_batches=1
    )))  # fmt: skip
    assert one_step_of_four.attribution.reduce == pytest.approx(
        four_steps_of_one[-1].attribution.reduce, rel=0.01
    )
    assert one_step_of_four.attribution.reduce > 0


def test_prefetch_hides_the_latency_of_the_tree() -> None:
    """A window of one bucket pays the round trip for every segment; a wider one does not."""
    program = make_program(layers=6, elements=1000, flops=10 * TERA)
    narrow, wide = (
        run(make_clock(program, make_machine(memoryx={"prefetch_buckets": buckets})))[-1]
        for buckets in (1, 3)
    )
    segments = 8 * 12
    assert narrow.attribution.weights >= (segments - 1) * 2 * 5 * PS_PER_US
    assert wide.attribution.weights < narrow.attribution.weights / 10


def test_systems_without_a_micro_batch_in_the_last_round_are_idle_there() -> None:
    """9 micro-batches on 8 systems: one works two rounds, seven work one and then nothing."""
    program = make_program(elements=1000, flops=100 * TERA, micro_batches=9)
    timing = run(make_clock(program, num_nodes=8))[-1]
    assert timing.num_busy == 1
    assert timing.spare.shares()["idle"] == pytest.approx(0.5, abs=0.01)
    assert timing.spare.compute * 2 == timing.attribution.compute


def test_the_clock_gives_the_same_answer_every_time() -> None:
    """Two clocks of one cluster agree in every number of every step."""
    program = make_program(micro_batches=5)
    assert run(make_clock(program, num_nodes=3)) == run(make_clock(program, num_nodes=3))


def test_steps_settle_to_one_length() -> None:
    """After the first steps have filled the pipes every step takes exactly as long."""
    timings = run(make_clock(make_program(), num_nodes=2), steps=6)
    assert timings[-1].duration_ps == timings[-2].duration_ps == timings[-3].duration_ps


def test_the_number_of_servers_hardly_matters_since_they_share_the_groups_bandwidth() -> None:
    """Two server processes emulate the same MemoryX as one, up to how evenly they are loaded."""
    program = make_program(layers=6)
    one, two = (run(make_clock(program, num_servers=n))[-1].duration_ps for n in (1, 2))
    assert two == pytest.approx(one, rel=0.02)


def test_evaluation_streams_forward_only_and_does_not_disturb_training() -> None:
    """A forward-only program takes its forward time and leaves the clock running on."""
    train = make_program(elements=1000, flops=100 * TERA)
    clock = make_clock(train, others=[make_program(mode="eval", elements=1000, flops=100 * TERA)])
    first = clock.step("train", 1)
    evaluated = clock.step("eval", 1)
    again = clock.step("train", 2)
    assert evaluated.start_ps == first.end_ps
    assert again.start_ps == evaluated.end_ps
    assert 3 * evaluated.attribution.compute == pytest.approx(first.attribution.compute, rel=1e-3)
    assert evaluated.attribution.reduce == 0


def test_recording_changes_no_time_and_lists_what_every_timeline_does() -> None:
    """The record holds non-overlapping work of each timeline; without it nothing is kept."""
    program = make_program()
    silent, recorded = make_clock(program), make_clock(program, record=True)
    assert run(silent) == run(recorded)
    assert silent.occupancies == []
    timelines: dict[str, list[tuple[int, int]]] = {}
    for work in recorded.occupancies:
        timelines.setdefault(work.timeline, []).append((work.start_ps, work.end_ps))
    assert {"CS wafer", "SwarmX down", "SwarmX up", "MemoryX out", "steps"} <= set(timelines)
    for subtrees in timelines.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(subtrees))


def test_two_thousand_systems_cost_no_more_host_time_than_eight() -> None:
    """A step of a 12-layer program takes well under 20 ms of host time at any cluster size."""
    for num_nodes, micro_batches in ((8, 8), (2048, 2048)):
        program = make_program(layers=12, micro_batches=micro_batches)
        clock = make_clock(program, num_nodes=num_nodes)
        best_s = min(_host_seconds(clock, step) for step in range(1, 6))
        assert best_s < 0.020


def _host_seconds(clock: ClusterTiming, step: int) -> float:
    start_s = time.perf_counter()
    clock.step("train", step)
    return time.perf_counter() - start_s


def test_a_prediction_says_rate_step_time_and_causes_in_one_line() -> None:
    """The line names the machine and agrees with the timing it was made from."""
    machine = make_machine()
    timing = run(make_clock(make_program(), machine, num_nodes=2))[-1]
    line = prediction(machine, 2, timing)
    assert "\n" not in line
    assert line.startswith("Emulated 2 x CS-2: ")
    assert f"{format_rate(samples_per_s([timing]))} samples/s" in line
    many = replace(timing, batch_size=20_000 * timing.batch_size)
    assert "e+" not in prediction(machine, 2, many), "a large rate is written out"
    assert "compute " in line
    assert timing.duration_ps < 100 * PS_PER_MS
