"""The whole emulated cluster on small programs written by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.timing import NodeTiming
from tests.support.timing.cluster_timings import (
    GIGA,
    MEGA,
    TERA,
    machine_with_memory,
    machines,
    make_machine,
    make_program,
    make_timing,
    programs,
    run,
    shapes,
)
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.units import PS_PER_MS, PS_PER_US, format_rate
from waferstream.machine.cost import segment_costs
from waferstream.machine.record import Record
from waferstream.simulator.cluster_timing import prediction


@given(programs, shapes, machines)
@settings(max_examples=60, deadline=None)
def test_attributions_sum_to_the_step_time(
    program: Program, shape: dict[str, Any], sections: dict[str, Any]
) -> None:
    """Every picosecond of every node's step has one cause, none is negative, none is left out."""
    timings = run(make_timing(program, make_machine(**sections), **shape), steps=3)
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
def test_doubling_any_resource_never_slows_a_run(
    section: str, key: str, program: Program, shape: dict[str, Any], sections: dict[str, Any]
) -> None:
    """From half to once to twice any bandwidth, window or clock, no run ends later."""
    value = getattr(getattr(make_machine(**sections), section), key)
    ends = []
    for amount in (max(1, value // 2), value, 2 * value):
        changed = {**sections, section: {**sections.get(section, {}), key: amount}}
        ends.append(run(make_timing(program, make_machine(**changed), **shape))[-1].end_ps)
    assert ends == sorted(ends, reverse=True)


@given(st.integers(1, 40), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_more_systems_never_slow_a_compute_bound_batch(micro_batches: int, num_nodes: int) -> None:
    """With much to compute and little to stream, one more system does not lengthen a step."""
    program = make_program(elements=1000, flops=100 * TERA, micro_batches=micro_batches)
    machine = make_machine(swarmx={"hop_latency_ps": 0})
    durations = [
        run(make_timing(program, machine, num_nodes=nodes))[-1].duration_ps
        for nodes in (num_nodes, num_nodes + 1)
    ]
    assert durations[1] <= durations[0]


def test_compute_bound_step_takes_the_time_of_its_arithmetic() -> None:
    """Where arithmetic dwarfs the stream, a step is its rounds' flops over the sustained rate."""
    machine = make_machine()
    program = make_program(layers=4, elements=1000, flops=100 * TERA, micro_batches=8)
    timing = run(make_timing(program, machine, num_nodes=4))[-1]
    one_round_ps = sum(cost.total_ps for cost in segment_costs(program, machine.system))
    assert timing.duration_ps == pytest.approx(2 * one_round_ps, rel=0.001)
    assert timing.attribution.shares()["compute"] > 0.998


@pytest.mark.parametrize("blocks", [1, 3])
def test_stream_bound_step_takes_the_time_of_its_bytes(blocks: int) -> None:
    """Where the stream dwarfs arithmetic, a step lasts as long as its weights are on the wire.

    They stream to each block.
    """
    program = make_program(
        layers=8, elements=100 * MEGA, flops=GIGA, micro_batches=8, blocks=blocks
    )
    timing = run(make_timing(program))[-1]
    weight_bytes = blocks * 8 * 2 * 8 * 100 * MEGA * 2  # 8 rounds, down twice, 8 layers, bf16
    assert timing.duration_ps / 1e12 == pytest.approx(weight_bytes / 150e9, rel=0.1)
    assert timing.attribution.shares()["weights"] > 0.5


def test_blocks_are_updated_once() -> None:
    """Gradients are added for each block, in the time of so many; the update is that of one."""
    machine = make_machine(memoryx={"memory_bandwidth_bytes_per_s": GIGA})
    ends = []
    for blocks in (1, 2, 3):
        program = make_program(layers=1, flops=0, micro_batches=1, blocks=blocks)
        ends.append(run(make_timing(program, machine))[0].end_ps)
    assert ends[2] - ends[1] == ends[1] - ends[0] > 0


def test_model_larger_than_memoryx_is_refused() -> None:
    """Three layers of a million parameters take 16 bytes each with the moments of Adam."""
    with pytest.raises(ApplianceResourceExhausted, match=r"45\.8 MiB(.|\n)*state 22\.9 MiB"):
        make_timing(make_program(), make_machine(memoryx={"dram_bytes": 40 * MEGA}))


def test_updates_overlap_unless_clipped_by_norm() -> None:
    """Updates overlap the backward pass unless they must wait for the norm of all gradients."""
    program = make_program(layers=8, elements=10 * MEGA, flops=5 * TERA, micro_batches=1)
    machine = machine_with_memory(500 * GIGA)
    overlapped, clipped = (
        run(make_timing(program, machine, waits_for_all=clips))[-1] for clips in (False, True)
    )
    assert clipped.attribution.reduce > 2 * overlapped.attribution.reduce
    assert clipped.attribution.compute == overlapped.attribution.compute


def test_update_is_exposed_only_between_steps() -> None:
    """Between rounds weights stream ahead; between steps the first layer waits for its update."""
    program = make_program(elements=10 * MEGA, flops=10 * TERA, micro_batches=4)
    one_step_of_four = run(make_timing(program))[-1]
    four_steps_of_one = run(make_timing(make_program(
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
        run(make_timing(program, make_machine(memoryx={"prefetch_buckets": buckets})))[-1]
        for buckets in (1, 3)
    )
    segments = 8 * 12
    assert narrow.attribution.weights >= (segments - 1) * 2 * 5 * PS_PER_US
    assert wide.attribution.weights < narrow.attribution.weights / 10


def test_systems_without_a_micro_batch_are_idle() -> None:
    """9 micro-batches on 8 systems: one works two rounds, seven work one and then nothing."""
    program = make_program(elements=1000, flops=100 * TERA, micro_batches=9)
    timing = run(make_timing(program, num_nodes=8))[-1]
    assert timing.num_busy == 1
    assert timing.spare.shares()["idle"] == pytest.approx(0.5, abs=0.01)
    assert timing.spare.compute * 2 == timing.attribution.compute


def test_timing_is_the_same_every_time() -> None:
    """Two timing models of one cluster agree in every number of every step."""
    program = make_program(micro_batches=5)
    assert run(make_timing(program, num_nodes=3)) == run(make_timing(program, num_nodes=3))


def test_steps_settle_to_one_length() -> None:
    """After the first steps have filled the pipes every step takes exactly as long."""
    timings = run(make_timing(make_program(), num_nodes=2), steps=6)
    assert timings[-1].duration_ps == timings[-2].duration_ps == timings[-3].duration_ps


def test_number_of_servers_hardly_matters() -> None:
    """Two server processes emulate the same MemoryX as one, up to how evenly they are loaded."""
    program = make_program(layers=6)
    one, two = (run(make_timing(program, num_servers=n))[-1].duration_ps for n in (1, 2))
    assert two == pytest.approx(one, rel=0.02)


def test_evaluation_streams_forward_only() -> None:
    """A forward-only program takes its forward time and emulated time runs on."""
    train = make_program(elements=1000, flops=100 * TERA)
    cluster = make_timing(
        train, others=[make_program(kind=ProgramKind.EVAL, elements=1000, flops=100 * TERA)]
    )
    first = cluster.step(ProgramKind.TRAIN, 1)
    evaluated = cluster.step(ProgramKind.EVAL, 1)
    again = cluster.step(ProgramKind.TRAIN, 2)
    assert evaluated.start_ps == first.end_ps
    assert again.start_ps == evaluated.end_ps
    assert 3 * evaluated.attribution.compute == pytest.approx(first.attribution.compute, rel=1e-3)
    assert evaluated.attribution.reduce == 0


def test_record_lists_every_activity_and_changes_no_time() -> None:
    """The record holds non-overlapping work of each timeline."""
    program = make_program()
    record = Record()
    assert run(make_timing(program)) == run(make_timing(program, record=record))
    timelines: dict[str, list[tuple[int, int]]] = {}
    for work in record.occupancies:
        timelines.setdefault(work.timeline, []).append((work.start_ps, work.end_ps))
    assert {"CS wafer", "SwarmX down", "SwarmX up", "MemoryX out", "steps"} <= set(timelines)
    for subtrees in timelines.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(subtrees))


def test_executed_segments_do_not_grow_with_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five steps of a 12-layer program, on 2,048 systems as on 8."""
    started: list[int] = []
    run_segment = NodeTiming.run

    def counting(node: NodeTiming, *arguments: Any) -> None:
        started.append(1)
        run_segment(node, *arguments)

    monkeypatch.setattr(NodeTiming, "run", counting)
    counts = []
    for num_nodes in (8, 2048):
        started.clear()
        program = make_program(layers=12, micro_batches=num_nodes)
        run(make_timing(program, num_nodes=num_nodes), steps=5)
        counts.append(len(started))
    assert counts[0] == counts[1]


def test_prediction_has_rate_step_time_and_causes() -> None:
    """The line names the machine and agrees with the timing it was made from."""
    machine = make_machine()
    timing = run(make_timing(make_program(), machine, num_nodes=2))[-1]
    line = prediction(machine, 2, timing)
    assert "\n" not in line
    assert line.startswith("Emulated 2 x CS-2: ")
    assert f"{format_rate(timing.samples_per_s)} samples/s" in line
    many = replace(timing, batch_size=20_000 * timing.batch_size)
    assert "e+" not in prediction(machine, 2, many), "a large rate is written out"
    assert "compute " in line
    assert timing.duration_ps < 100 * PS_PER_MS
