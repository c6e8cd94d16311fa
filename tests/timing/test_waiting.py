"""Whatever is slow in a cluster shows as the cause of waiting, or as a longer step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.timing.cluster_timings import (
    ADAMW,
    GIGA,
    MEGA,
    TERA,
    machine_with_memory,
    make_machine,
    make_program,
    make_timing,
    run,
)
from waferstream.core.program.program import BYTES_PER_ELEMENT, ProgramKind
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.units import PS_PER_MS
from waferstream.machine.record import Record
from waferstream.simulator.cluster_timing import ClusterTiming
from waferstream.simulator.costed_program import CostedProgram


def test_slow_memory_shows_as_waiting_for_weights() -> None:
    """Where reading masters dwarfs the rest, their bytes over its bandwidth are the step."""
    program = make_program(kind=ProgramKind.EVAL, layers=8, elements=100 * MEGA, flops=GIGA)
    record = Record()
    cluster = make_timing(program, machine_with_memory(100 * GIGA), record=record)
    timing = run(cluster, kind=ProgramKind.EVAL)[-1]
    master_bytes = 8 * 8 * 100 * MEGA * 4  # 8 rounds, 8 layers, fp32
    assert timing.duration_ps / 1e12 == pytest.approx(master_bytes / 100e9, rel=0.01)
    assert timing.attribution.shares()["weights"] > 0.9
    reading_ps = sum(
        work.end_ps - work.start_ps
        for work in record.occupancies
        if work.timeline == "MemoryX memory out 0"
    )
    assert reading_ps > 0.99 * timing.end_ps


@pytest.mark.parametrize("stream_dtype", ["bfloat16", "float32"])
def test_memory_as_fast_as_the_link_takes_no_time(stream_dtype: str) -> None:
    """A step that is bound by its stream takes as long as with memory without end, and no less."""
    program = replace(
        make_program(kind=ProgramKind.EVAL, elements=MEGA, flops=0), stream_dtype=stream_dtype
    )
    link = make_machine().memoryx.bandwidth_bytes_per_s
    enough = link * 4 // BYTES_PER_ELEMENT[stream_dtype]
    steps = [
        run(make_timing(program, machine_with_memory(rate)), kind=ProgramKind.EVAL)
        for rate in (enough * 9 // 10, enough, 1000 * enough)
    ]
    assert steps[0][-1].duration_ps > steps[1][-1].duration_ps
    assert steps[1] == steps[2]


def test_a_slow_input_shows_as_waiting_for_input() -> None:
    """A batch that comes in slower than it is computed is named as the cause."""
    machine = make_machine(input={"bandwidth_bytes_per_s": 10_000})
    timing = run(make_timing(make_program(elements=1000), machine))[-1]
    assert timing.attribution.shares()["input"] > 0.9
    assert timing.duration_ps == pytest.approx(8 * 400 * PS_PER_MS, rel=0.01)


def test_a_slow_loader_shows_as_waiting_for_input() -> None:
    """Four samples per micro-batch from workers that take 100 ms for each."""
    program = make_program(elements=1000)
    for workers in (1, 2):
        machine = make_machine(
            input={"other": {"sample_ps": 100 * PS_PER_MS}, "workers_per_system": workers}
        )
        timing = run(make_timing(program, machine))[-1]
        assert timing.attribution.shares()["input"] > 0.9
        assert timing.duration_ps == pytest.approx(8 * 400 * PS_PER_MS / workers, rel=0.01)


def test_model_larger_than_dram_streams_at_the_rate_of_flash() -> None:
    """In evaluation, masters of 4 bytes come from flash once a round; nothing takes longer."""
    program = make_program(kind=ProgramKind.EVAL, layers=8, elements=100 * MEGA, flops=GIGA)
    flash = {"dram_bytes": 1, "flash_bytes": TERA, "flash_bandwidth_bytes_per_s": 50 * GIGA}
    timing = run(make_timing(program, make_machine(memoryx=flash)), kind=ProgramKind.EVAL)[-1]
    read_bytes = 8 * 8 * 100 * MEGA * 4
    assert timing.duration_ps / 1e12 == pytest.approx(read_bytes / 50e9, rel=0.01)


def test_optimizer_arithmetic_counts_on_slow_processors() -> None:
    """On slow processors the update costs what it computes, not what it moves."""
    machine = make_machine(memoryx={"flops_per_s": 10 * GIGA})
    waits = []
    for cost in (ADAMW, ADAMW._replace(flops=30)):
        program, cluster = make_program(micro_batches=1), ClusterTiming(machine, 1, 1)
        cluster.load_program(
            CostedProgram.of(program, plan_streams(program, 1), cluster.machine, update=cost)
        )
        waits.append(run(cluster)[-1].attribution.reduce)
    assert waits[1] > 1.5 * waits[0]


def test_slow_system_delays_every_round_it_takes_part_in() -> None:
    """9 micro-batches on 8 systems, the last of them slow: it works in the first round only."""
    program = make_program(elements=1000, flops=100 * TERA, micro_batches=9)
    steps = [
        run(make_timing(program, make_machine(jitter={"stragglers": slow}), num_nodes=8))[-1]
        for slow in ({}, {"csx-7": 1.5}, {"csx-8": 1.5})
    ]
    even, slow, absent = steps
    assert absent == even
    assert slow.attribution.straggler == pytest.approx(0.5 * even.duration_ps / 2, rel=0.01)
    assert slow.attribution.compute == even.attribution.compute
    assert slow.spare.straggler == slow.attribution.straggler


def test_jitter_takes_more_time_with_more_systems() -> None:
    """The same seed gives the same run; the slowest of 64 is slower than the slowest of 4."""
    program = make_program(elements=1000, flops=100 * TERA, micro_batches=64)

    def end_ps(num_nodes: int, seed: int) -> int:
        machine = make_machine(jitter={"seed": seed, "kernel_sigma": 0.1, "transfer_sigma": 0.1})
        few = replace(program, num_micro_batches=num_nodes)
        return run(make_timing(few, machine, num_nodes=num_nodes))[-1].end_ps

    assert end_ps(4, 1) == end_ps(4, 1) != end_ps(4, 2)
    assert end_ps(64, 1) > 1.05 * end_ps(4, 1)


def test_jitter_of_transfers_lengthens_the_stream() -> None:
    """Where the stream is what takes time, transfers that vary lengthen the step."""
    program = make_program(layers=8, elements=100 * MEGA, flops=GIGA, micro_batches=8)
    even, varied = (
        run(make_timing(program, make_machine(jitter={"transfer_sigma": sigma}), num_nodes=8))[-1]
        for sigma in (0.0, 0.2)
    )
    assert varied.duration_ps > 1.1 * even.duration_ps
    assert varied.attribution.straggler == 0


def test_a_slow_optimizer_shows_as_waiting_for_the_reduce() -> None:
    """If MemoryX takes long to sum and update, systems wait at the end of the step."""
    machine = machine_with_memory(10 * GIGA)
    timing = run(make_timing(make_program(), machine, num_nodes=8))[-1]
    assert timing.attribution.shares()["reduce"] > 0.5
