"""Points of a curve, and one point in detail, for a step of two layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from memoryx.optim.cost import UpdateCost
from memoryx.tiers import Holding
from tests.support.errors import raises
from tests.support.programs.plain_steps import backward_step, mean_square
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.scale import capture_both
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.program.micro_batches import Explore, MicroBatchPolicy, SizeRange
from waferstream.core.program.program import ProgramKind
from waferstream.core.units import format_bytes
from waferstream.machine.hardware import CS2, MachineSpec, MemoryXSpec, override
from waferstream.machine.record import Record
from waferstream.numerics.precision import StreamPrecision
from waferstream.reports.curve.result import CurvePoint, PredictedStep
from waferstream.simulation.study import Study
from waferstream.simulator.simulator import Simulator
from waferstream.workload.packing import Packing

BATCH = 48


def compiled_at(size: int) -> Compiled:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    step = backward_step(model, mean_square)
    request = CompileRequest(StreamPrecision(), size, 1, "a test")
    return compile_step(step, model, [("x", torch.zeros(size, 64))], request)[0]


@pytest.fixture(scope="module")
def study() -> Study:
    simulator = Simulator(capture_both(compiled_at), MachineSpec(), update=UpdateCost(8, 15))
    return Study(simulator, BATCH, 128, MicroBatchPolicy("fill_wafer"))


def on(study: Study, machine: MachineSpec) -> Study:
    """Return the study on another machine."""
    return replace(study, simulator=Simulator(study.simulator.program, machine))


def predicted(point: CurvePoint) -> PredictedStep:
    """Return what only a simulated point has."""
    assert point.prediction is not None
    return point.prediction


def test_curve_points_follow_from_step_time(study: Study) -> None:
    """Throughput is the batch over the step, also if the batch is no multiple of the systems."""
    for point in study.curve((1, 5, 48)):
        emulated, prediction = point.emulated, predicted(point)
        rate = BATCH / (emulated.step_ps * 1e-12)
        assert emulated.samples_per_s == pytest.approx(rate)
        assert prediction.tokens_per_s == pytest.approx(128 * rate)
        assert prediction.flops_per_s == pytest.approx(11 * 2 * 64 * 64 * rate)
        assert emulated.attribution_ps.total_ps == emulated.step_ps == prediction.steps_ps[-1]
        peak = point.num_csx * study.simulator.machine.system.peak_flops_per_s
        assert prediction.utilisation == pytest.approx(prediction.flops_per_s / peak)


def test_weak_scaling_gives_every_system_the_batch(study: Study) -> None:
    """Four systems pass as many micro-batches as one, of four times the samples."""
    one, four = replace(study, weak=True).curve((1, 4))
    assert four.micro_batch_size == one.micro_batch_size
    assert predicted(four).num_rounds == predicted(one).num_rounds
    rate = 4 * BATCH / (four.emulated.step_ps * 1e-12)
    assert four.emulated.samples_per_s == pytest.approx(rate)
    assert study.curve((1,))[0].emulated == one.emulated


def test_curve_efficiency_is_relative_to_the_first_point(study: Study) -> None:
    two, six = study.curve((2, 6))
    assert two.efficiency == 1.0
    ratio = six.emulated.samples_per_s / two.emulated.samples_per_s
    assert six.efficiency == pytest.approx(ratio / 3)


@pytest.mark.parametrize(
    ("micro_batch", "num_csx", "size", "rounds"),
    [
        ("auto", 5, 6, 2),
        ("fill_wafer", 5, 10, 1),
        (4, 6, 4, 2),
        (None, 5, 10, 1),
        (Explore(explore=SizeRange(min=3, max=6)), 2, 6, 4),
    ],
)
def test_micro_batch_size_follows_the_policy(
    study: Study, micro_batch: Any, num_csx: int, size: int, rounds: int
) -> None:
    """A divisor, the most that fits in uniform rounds, a number, a whole share, the fastest."""
    (point,) = replace(study, policy=MicroBatchPolicy(micro_batch)).curve((num_csx,))
    assert (point.micro_batch_size, predicted(point).num_rounds) == (size, rounds)


def test_fill_wafer_takes_uniform_rounds_on_a_small_wafer(study: Study) -> None:
    """Seven of twelve samples would fit, so it takes two rounds of six."""
    footprint = study.simulator.sram_plan(7).peak_bytes
    reserved = MachineSpec().system.sram_bytes - study.detail(1).sram_capacity_bytes
    small = on(study, MachineSpec(system=override(CS2, sram_bytes=reserved + footprint)))
    assert 7 <= small.simulator.largest_micro_batch < 12
    (point,) = small.curve((4,))
    assert (point.micro_batch_size, predicted(point).num_rounds) == (6, 2)
    whole = replace(small, batch_size=480, policy=MicroBatchPolicy("auto"))
    fits = small.simulator.largest_micro_batch
    assert whole.micro_batch_size(4) == max(d for d in range(1, fits + 1) if 480 % d == 0)


def test_point_with_small_micro_batches_knows_the_filled_wafer(study: Study) -> None:
    """With 48 samples on one system: 6 by ``auto`` in 8 rounds, all by ``fill_wafer`` in one."""
    automatic = replace(study, policy=MicroBatchPolicy("auto"))
    one, eight = automatic.curve((1, 8))
    filled = automatic.filled(one)
    assert filled is not None
    assert (filled.micro_batch_size, filled.num_rounds) == (48, 1)
    (whole,) = study.curve((1,))
    assert filled.speed_up == pytest.approx(one.emulated.step_ps / whole.emulated.step_ps)
    assert filled.speed_up > 1
    assert automatic.filled(eight) is None
    assert study.filled(whole) is None
    assert automatic.effective_batch(2).endswith("48: 8 x micro-batch 6 (policy: auto)")
    assert study.effective_batch(5).endswith("48: 5 x micro-batch 10 at most (policy: fill_wafer)")


@pytest.mark.parametrize(
    ("micro_batch", "num_csx", "code"),
    [
        ("auto", 49, "batch-below-systems"),
        ("fill_wafer", 49, "batch-below-systems"),
        (8, 7, "system-without-micro-batch"),
    ],
)
def test_curve_refuses_a_batch_that_cannot_be_shared(
    study: Study, micro_batch: Any, num_csx: int, code: str
) -> None:
    """As a run would refuse it."""
    with raises(ConfigError, code):
        replace(study, policy=MicroBatchPolicy(micro_batch)).curve((1, num_csx))


def test_impossible_number_of_systems_is_no_end_of_a_sweep(study: Study) -> None:
    """The others have the points of a curve of their own; without any, the error is raised."""
    points, refused = study.possible_curve((1, 6, 49, 50))
    assert points == study.curve((1, 6))
    assert [(each.num_csx, each.code) for each in refused] == [
        (49, "batch-below-systems"),
        (50, "batch-below-systems"),
    ]
    with raises(ConfigError, "batch-below-systems"):
        study.possible_curve((49, 50))


@pytest.mark.parametrize(("micro_batch", "group"), [(6, 4), (5, 5), ("fill_wafer", 32)])
def test_curve_refuses_micro_batches_that_cut_groups(
    study: Study, micro_batch: Any, group: int
) -> None:
    """As a run would: of 6 samples, of 5 at most, and of all 48."""
    grouped = replace(study, group_of_samples=group)
    with raises(ConfigError, "group-cut"):
        replace(grouped, policy=MicroBatchPolicy(micro_batch)).curve((1,))


def test_explore_compares_whole_groups(study: Study) -> None:
    """Of the sizes up to 24, those of 16 samples: the fastest of all would be 24."""
    policy = MicroBatchPolicy(Explore(explore=SizeRange(max=24)))
    sizes = [
        replace(study, policy=policy, group_of_samples=group).micro_batch_size(1)
        for group in (1, 16)
    ]
    assert sizes == [24, 16]


@pytest.mark.parametrize(
    ("micro_batch", "group", "is_one"),
    [
        (1, 1, True),
        (2, 1, False),
        (4, 4, True),
        (8, 4, False),
        (Explore(), 4, True),
        (Explore(explore=SizeRange(min=5)), 4, False),
    ],
)
def test_single_groups_are_captured_where_they_are_asked_for(
    study: Study, micro_batch: Any, group: int, is_one: bool
) -> None:
    """By an integer, or among the sizes to explore."""
    asked = replace(study, policy=MicroBatchPolicy(micro_batch), group_of_samples=group)
    assert asked.takes_one_group(1) == is_one


def test_filled_wafer_cuts_no_groups(study: Study) -> None:
    """Of all 48 samples on one system, where 6 are chosen."""
    automatic = replace(study, policy=MicroBatchPolicy("auto"))
    (point,) = automatic.curve((1,))
    found = [replace(automatic, group_of_samples=group).filled(point) for group in (3, 5)]
    assert [each is None for each in found] == [False, True]


def test_curve_refuses_a_model_that_fits_no_wafer(study: Study) -> None:
    """Not even one sample fits."""
    reserved = MachineSpec().system.sram_bytes - study.detail(1).sram_capacity_bytes
    tiny = on(study, MachineSpec(system=override(CS2, sram_bytes=reserved + 64)))
    with pytest.raises(ApplianceResourceExhausted) as caught:
        tiny.curve((1,))
    assert format_bytes(reserved + 64) in (caught.value.rule or "")


def overflowing(study: Study, samples: int) -> Study:
    """Return the study on wafers that hold so many samples, and may overflow."""
    footprint = study.simulator.sram_plan(samples).peak_bytes
    reserved = MachineSpec().system.sram_bytes - study.detail(1).sram_capacity_bytes
    small = on(study, MachineSpec(system=override(CS2, sram_bytes=reserved + footprint)))
    return replace(small, simulator=replace(small.simulator, allows_overflow=True))


def test_curve_with_overflow_states_what_is_missing(study: Study) -> None:
    """Where the stated micro-batch does not fit; it takes as long as on a wafer where it does."""
    stated = replace(study, policy=MicroBatchPolicy(12))
    small = overflowing(stated, samples=7)
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        replace(small, simulator=replace(small.simulator, allows_overflow=False)).curve((1,))
    assert "--allow_overflow" in str(caught.value.remedy)
    (point,) = small.curve((1,))
    overflow = predicted(point).overflow
    assert overflow is not None
    lacking = predicted(point).sram_peak_bytes - small.detail(1).sram_capacity_bytes
    assert overflow.sram_bytes == lacking > 0
    assert point.micro_batch_size == 12
    assert predicted(stated.curve((1,))[0]).overflow is None


@pytest.mark.parametrize("micro_batch", ["fill_wafer", "auto", "explore"])
def test_policies_take_what_fits_although_it_may_overflow(study: Study, micro_batch: Any) -> None:
    """Overflow is for sizes that are stated, and for models of which no sample fits."""
    policy = MicroBatchPolicy(Explore() if micro_batch == "explore" else micro_batch)
    (point,) = replace(overflowing(study, samples=7), policy=policy).curve((4,))
    assert point.micro_batch_size == 6
    assert predicted(point).overflow is None


def test_curve_refuses_a_model_that_exceeds_memoryx(study: Study) -> None:
    tiny = on(study, MachineSpec(memoryx=MemoryXSpec(dram_bytes=1000, flash_bytes=1000)))
    with pytest.raises(ApplianceResourceExhausted) as caught:
        tiny.curve((1,))
    assert format_bytes(1000) in (caught.value.rule or "")


def test_detail_groups_layers_in_order_of_execution(study: Study) -> None:
    """Every segment is counted once."""
    layers = study.detail(2).layers
    phases = [group.check.phase for group in layers]
    assert sum(group.count for group in layers) == len(study.costed(2).program.segments)
    assert phases == sorted(phases, reverse=True)
    assert len({(group.layers, group.check.phase) for group in layers}) == len(layers)
    for group in layers:
        assert group.stream_ps == group.check.stream_ps
        assert group.check.holds == (not group.remedy)


def test_detail_has_the_memory_of_masters_sums_and_state(study: Study) -> None:
    """fp32 masters, sums and two moments; all in DRAM, and small enough for one wafer."""
    detail = study.detail(1)
    parameters = 4 * (64 * 64 + 64)
    assert detail.tiers.masters == detail.tiers.sums == Holding(4 * parameters)
    assert detail.tiers.state == Holding(8 * parameters)
    assert detail.resident_bytes == (2 + 2 + 4 + 8) * parameters
    assert detail.fits_sram


@pytest.mark.parametrize(("spare_bytes", "fits"), [(0, True), (-1, False)])
def test_detail_fits_sram_to_the_last_byte(study: Study, spare_bytes: int, fits: bool) -> None:
    """Weights, gradients, masters and state, before any activation."""
    sram_bytes = study.detail(1).resident_bytes + spare_bytes
    system = {"sram_bytes": sram_bytes, "fabric": {"sram_reserved_bytes_per_pe": 0}}
    machine = MachineSpec.model_validate({"system": system})
    simulator = Simulator(study.simulator.program, machine, update=UpdateCost(8, 15))
    small = replace(study, simulator=simulator)
    assert small.detail(1).fits_sram == fits


def test_use_of_a_point_has_the_bytes_that_the_links_carry(study: Study) -> None:
    """Where the links are slowest, each is busy for its bytes over its bandwidth."""
    slow = {"swarmx": {"link_bandwidth_bytes_per_s": 10**8}}
    slow_study = on(study, MachineSpec.model_validate(slow))
    (point,) = slow_study.curve((4,))
    load = slow_study.use(point).load
    record = Record()
    timing = slow_study.simulator.cluster_timing(slow_study.costed(4), 4, record)
    step_ps = timing.step(ProgramKind.TRAIN, 1).duration_ps
    assert 0 < load.down < load.up < 1  # gradients travel in fp32
    for wire, num_bytes in (("SwarmX down", load.down_bytes), ("SwarmX up", load.up_bytes)):
        busy_ps = sum(o.end_ps - o.start_ps for o in record.occupancies if o.timeline == wire)
        assert busy_ps == num_bytes * 10_000
        assert busy_ps <= step_ps
    assert load.down == pytest.approx(load.down_bytes * 10_000 / point.emulated.step_ps)


def test_tokens_of_padding_do_not_count(study: Study) -> None:
    """Neither in the rate nor in the energy of a million tokens."""
    half = replace(study, packing=Packing(10, 12, 10 * 64, 128))
    (full,), (found,) = study.curve((2,)), half.curve((2,))
    rates = [predicted(point).tokens_per_s for point in (full, found)]
    assert rates == [found.emulated.samples_per_s * 128, found.emulated.samples_per_s * 64]
    assert full.energy is not None
    assert found.energy is not None
    assert full.energy.per_million_tokens is not None
    assert found.energy.per_million_tokens is not None
    assert found.energy.per_million_tokens.kwh == 2 * full.energy.per_million_tokens.kwh
    assert found.energy.step == full.energy.step
