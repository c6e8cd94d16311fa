"""Points of a curve, and one of them in detail, for a step of two layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from memoryx.optim.cost import UpdateCost
from simulator.simulator import Simulator
from tests.support.errors import raises
from tests.support.plain_steps import backward_step, mean_square
from timing.hardware import MachineSpec, MemoryXSpec, WaferSpec
from waferstream.simulation.study import Study
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.compiled import Compiled
from wsc.compiler.precision import StreamPrecision
from wsc.compiler.scale import capture_both
from wsc.core.errors import ApplianceResourceExhausted, ConfigError
from wsc.core.micro_batches import Explore, MicroBatchPolicy, SizeRange

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
    """The same on another machine."""
    return replace(study, simulator=Simulator(study.simulator.program, machine))


def test_a_point_follows_from_its_step_time(study: Study) -> None:
    """Rates are the batch over the step, also where the batch is no multiple of the systems."""
    for point in study.curve((1, 5, 48)):
        rate = BATCH / (point.step_ps * 1e-12)
        assert point.samples_per_s == pytest.approx(rate)
        assert point.tokens_per_s == pytest.approx(128 * rate)
        assert point.flops_per_s == pytest.approx(11 * 2 * 64 * 64 * rate)
        assert point.attribution_ps.total_ps == point.step_ps == point.steps_ps[-1]
        peak = point.num_csx * study.simulator.machine.system.peak_flops_per_s
        assert point.utilisation == pytest.approx(point.flops_per_s / peak)


def test_efficiency_is_relative_to_the_first_point(study: Study) -> None:
    """It never exceeds the ideal, which is proportional to the systems."""
    two, six = study.curve((2, 6))
    assert two.efficiency == 1.0
    assert six.efficiency == pytest.approx(six.samples_per_s / two.samples_per_s / 3)


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
def test_the_micro_batch_is_what_was_asked_for(
    study: Study, micro_batch: Any, num_csx: int, size: int, rounds: int
) -> None:
    """A divisor, the most that fits in uniform rounds, a number, a whole share, the fastest."""
    (point,) = replace(study, policy=MicroBatchPolicy(micro_batch)).curve((num_csx,))
    assert (point.micro_batch_size, point.num_rounds) == (size, rounds)


def test_fill_wafer_takes_uniform_rounds_on_a_small_wafer(study: Study) -> None:
    """Seven of twelve samples would fit, so it takes two rounds of six."""
    footprint = study.simulator.sram_plan(7).peak_bytes
    reserved = MachineSpec().system.sram_bytes - study.memory(1).sram_room_bytes
    small = on(study, MachineSpec(system=WaferSpec(sram_bytes=reserved + footprint)))
    assert 7 <= small.simulator.largest_micro_batch < 12
    (point,) = small.curve((4,))
    assert (point.micro_batch_size, point.num_rounds) == (6, 2)
    whole = replace(small, batch_size=480, policy=MicroBatchPolicy("auto"))
    fits = small.simulator.largest_micro_batch
    assert whole.micro_batch_size(4) == max(d for d in range(1, fits + 1) if 480 % d == 0)


def test_fill_wafer_size_is_known_where_auto_takes_less(study: Study) -> None:
    """With 48 samples on one system: 6 by ``auto``, all by ``fill_wafer``."""
    automatic = replace(study, policy=MicroBatchPolicy("auto"))
    assert automatic.fill_wafer_size(1) == 48
    assert automatic.fill_wafer_size(8) is None
    assert study.fill_wafer_size(1) is None
    assert automatic.effective_batch(2).endswith("48: 8 x micro-batch 6 (policy: auto)")
    assert study.effective_batch(5).endswith("48: 5 x micro-batch 10 at most (policy: fill_wafer)")


@pytest.mark.parametrize(
    ("micro_batch", "num_csx", "code"),
    [
        ("auto", 49, "batch-below-systems"),
        ("fill_wafer", 49, "batch-below-systems"),
        (5, 2, "batch-not-divisible"),
        (8, 7, "system-without-micro-batch"),
    ],
)
def test_a_batch_that_cannot_be_shared_is_refused(
    study: Study, micro_batch: Any, num_csx: int, code: str
) -> None:
    """As a run would refuse it."""
    with raises(ConfigError, code):
        replace(study, policy=MicroBatchPolicy(micro_batch)).curve((1, num_csx))


def test_a_model_that_fits_no_wafer_is_refused(study: Study) -> None:
    """Not even one sample: the message says what it needs and what there is."""
    reserved = MachineSpec().system.sram_bytes - study.memory(1).sram_room_bytes
    tiny = on(study, MachineSpec(system=WaferSpec(sram_bytes=reserved + 64)))
    with pytest.raises(ApplianceResourceExhausted, match="not even one sample fits"):
        tiny.curve((1,))


def test_a_model_that_memoryx_does_not_hold_is_refused(study: Study) -> None:
    """The message has the bytes of weights and of both tiers."""
    tiny = on(study, MachineSpec(memoryx=MemoryXSpec(dram_bytes=1000, flash_bytes=1000)))
    with pytest.raises(ApplianceResourceExhausted, match="fp32 weights"):
        tiny.curve((1,))


def test_layers_that_differ_in_number_alone_are_one_line(study: Study) -> None:
    """Every segment is counted once, and lines are in order of execution."""
    layers = study.layers(2)
    assert sum(layer.count for layer in layers) == len(study.costed(2).program.segments)
    assert [layer.phase for layer in layers] == sorted((x.phase for x in layers), reverse=True)
    assert len({(layer.layer, layer.phase) for layer in layers}) == len(layers)
    for layer in layers:
        assert layer.holds == (layer.stream_ps <= layer.compute_ps) == (not layer.cure)


def test_memory_adds_up(study: Study) -> None:
    """fp32 masters, sums and two moments; all in DRAM, and little enough for one wafer."""
    memory = study.memory(1)
    parameters = 4 * (64 * 64 + 64)
    assert memory.masters_bytes == memory.gradient_sums_bytes == 4 * parameters
    assert memory.optimizer_state_bytes == 8 * parameters
    assert memory.resident_bytes == (2 + 2 + 4 + 8) * parameters
    assert (memory.memoryx_tier, memory.memoryx_flash_bytes) == ("DRAM", 0)
    assert memory.fits_sram


@pytest.mark.parametrize(("spare_bytes", "fits"), [(0, True), (-1, False)])
def test_a_model_fits_a_wafer_to_the_last_byte(study: Study, spare_bytes: int, fits: bool) -> None:
    """Whether weights, gradients, masters and state could lie there, before any activation."""
    sram_bytes = study.memory(1).resident_bytes + spare_bytes
    system = {"sram_bytes": sram_bytes, "fabric": {"sram_reserved_bytes_per_pe": 0}}
    machine = MachineSpec.model_validate({"system": system})
    simulator = Simulator(study.simulator.program, machine, update=UpdateCost(8, 15))
    assert replace(study, simulator=simulator).memory(1).fits_sram == fits
