"""The record of the emulated clock adds up to what the clock reports."""

from collections import Counter

import pytest

from csnode.timing import ATTRIBUTION
from tests.support.timing.cluster_timings import (
    GIGA,
    MEGA,
    make_machine,
    make_program,
    make_timing,
    run,
)
from waferstream.machine.attribution import Attribution, StepTiming
from waferstream.machine.record import Record
from waferstream.machine.trace import ATTRIBUTION_OF
from waferstream.simulator.cluster_timing import SPARE

JITTER = {"kernel_sigma": 0.2, "transfer_sigma": 0.3, "stragglers": {"csx-1": 1.5}}


def causes(record: Record, step: int, timeline: str = ATTRIBUTION) -> Attribution:
    spent: Counter[str] = Counter()
    for work in record.occupancies:
        if work.timeline == timeline and work.place.step == step:
            cause = ATTRIBUTION_OF.get(work.activity, work.activity)
            spent[cause] += work.end_ps - work.start_ps
    return Attribution(**spent)


@pytest.mark.parametrize("waits_for_all", [False, True])
@pytest.mark.parametrize("jitter", [{}, JITTER], ids=["even", "jitter"])
def test_slices_of_a_step_sum_to_its_attribution(
    jitter: dict[str, object], waits_for_all: bool
) -> None:
    """To the picosecond and by cause, also of systems that are idle in the last round."""
    record = Record()
    machine = make_machine(jitter=jitter, system={"segment_overhead_ps": 10**6})
    program = make_program(layers=3, elements=MEGA, flops=GIGA, micro_batches=5)
    cluster = make_timing(
        program, machine, num_nodes=2, num_servers=2, waits_for_all=waits_for_all, record=record
    )
    timings = run(cluster, steps=3)
    for timing in timings:
        assert causes(record, timing.step) == timing.attribution
        assert causes(record, timing.step, SPARE).idle == timing.spare.idle > 0
    assert all(timing.attribution.weights for timing in timings)


@pytest.mark.parametrize("waits_for_all", [False, True])
def test_parts_of_the_last_round_are_those_of_the_record(waits_for_all: bool) -> None:
    """The backward pass ends with the last kernel; then the first weights are updated."""
    record = Record()
    program = make_program(layers=3, elements=MEGA, flops=GIGA, micro_batches=5)
    cluster = make_timing(program, num_nodes=2, waits_for_all=waits_for_all, record=record)
    for timing in run(cluster, steps=2):
        last = [
            work for work in record.occupancies
            if work.timeline == ATTRIBUTION and work.place.step == timing.step
            and work.place.round == 2 and work.place.phase
        ]  # fmt: skip
        computed_ps = last[-1].end_ps
        begin_ps = min(work.start_ps for work in last if work.place.phase == "backward")
        assert timing.update_ps == timing.end_ps - computed_ps
        assert timing.backward_ps == computed_ps - begin_ps
        assert timing.update_ps > 0


def test_a_full_record_changes_no_time() -> None:
    """What follows its last activity is computed as without a record."""
    program = make_program(layers=3, micro_batches=5)
    record = Record(limit=200)
    assert run(make_timing(program, record=record)) == run(make_timing(program))
    assert len(record.occupancies) == 200
    assert record.first_missing is not None
    assert 1 <= record.first_missing.step <= 4


def test_record_holds_the_bytes_of_every_stream() -> None:
    """Weights go down and gradients come up once in each round; jitter changes no bytes."""
    record = Record()
    program = make_program(layers=2, elements=1000, micro_batches=3)
    cluster = make_timing(program, make_machine(jitter=JITTER), record=record)
    steps: list[StepTiming] = run(cluster, steps=2)
    moved: Counter[str] = Counter()
    for work in record.occupancies:
        moved[work.timeline] += work.num_bytes
    weights = program.num_elements(spec.name for spec in program.parameters)
    rounds = 3 * len(steps)
    for down in ("MemoryX out", "SwarmX down", "CS weights in"):
        assert moved[down] == rounds * 2 * weights * 2  # forward and backward, bf16
    for up in ("CS gradients out", "SwarmX up", "MemoryX in"):
        assert moved[up] == rounds * weights * 4


def test_sram_of_a_record_is_that_of_the_plan() -> None:
    """One moment for each segment of a round, and one without any at its end."""
    record = Record()
    program = make_program(layers=2, micro_batches=3)
    run(make_timing(program, record=record), steps=1)
    assert len(record.sram) == 3 * (len(program.segments) + 1)
    assert record.sram[-1][1:] == (0, 0)
