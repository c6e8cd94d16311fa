"""Every number of cluster.yaml counts: in a step, around it, or only where its source says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from appliance.spec import ClusterSpec
from memoryx.optim.cost import UpdateCost
from tests.support.models.tiny_models import NO_DROPOUT
from tests.support.timing.machine_sources import numbers
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.scale import ScalableProgram, capture_both
from waferstream.core.config import validate
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.core.program.program import Loading
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.start_up import checkpoint_ps
from waferstream.numerics.precision import StreamPrecision
from waferstream.simulation.study import Study
from waferstream.simulator.simulator import Simulator
from waferstream.workload.models import training_example

MODEL = {
    "name": "gpt2",
    "vocab_size": 256,
    "max_position_embeddings": 128,
    "hidden_size": 128,
    "num_hidden_layers": 1,
    "num_heads": 2,
    "filter_size": 512,
    **NO_DROPOUT,
}

Settings = Mapping[str, Any]
"""Values by dotted field of MachineSpec."""


class Effect(NamedTuple):
    """A quantity grows (1) or shrinks (-1) with a field's new value, where ``context`` holds.

    Weights travel in ``stream`` precision.
    """

    value: Any
    quantity: str
    sign: int
    context: Settings = MappingProxyType({})
    stream: str = "bfloat16"


FAR = {"swarmx.hop_latency_ps": 10**9}
"""Latency that only what is under way can hide."""
NO_DRAM = {"memoryx.dram_bytes": 10**5}
FLASH = {**NO_DRAM, "memoryx.flash_bytes": 10**12}
SLOW_LOADER = {"input.hdf5.sample_ps": 10**10}

EFFECTS = {
    "system.cores": Effect(1_700_000, "peak", 1),
    "system.clock_hz": Effect(2 * 10**9, "step", -1),
    "system.flops_per_core_cycle": Effect(16, "peak", 1),
    "system.fabric.columns": Effect(4, "step", 1),
    "system.fabric.rows": Effect(1, "step", 1),
    "system.fabric.hop_cycles": Effect(100, "step", 1),
    "system.fabric.ramp_cycles": Effect(100, "step", 1),
    "system.fabric.wavelet_bytes": Effect(1, "step", 1),
    "system.fabric.cycles_per_wavelet": Effect(10.0, "step", 1),
    # fewer that are meant for others go first (waferstream/machine/kernels/collectives.py)
    "system.fabric.queue_wavelets": Effect(1, "step", -1),
    "system.fabric.sram_bytes_per_pe": Effect(1024, "step", 1),
    "system.fabric.sram_banks": Effect(256, "step", 1),
    "system.fabric.sram_reserved_bytes_per_pe": Effect(8192, "SRAM", -1),
    "system.fabric.fma_16bit_per_cycle": Effect(1.0, "step", 1),
    "system.fabric.fma_32bit_per_cycle": Effect(0.01, "step", 1),
    "system.fabric.copy_16bit_per_cycle": Effect(0.01, "step", 1),
    "system.fabric.copy_32bit_per_cycle": Effect(0.01, "step", 1, stream="float32"),
    "system.fabric.vector_setup_cycles": Effect(1000, "step", 1),
    "system.fabric.triggered_cycles": Effect(100, "step", 1),
    "system.fabric.unary_cycles": Effect(1000, "step", 1),
    "system.defects.pe_yield": Effect(0.98, "step", 1),
    "system.defects.link_yield": Effect(0.95, "SRAM", -1),
    "system.defects.seed": Effect(4, "SRAM", 1, {"system.defects.pe_yield": 0.98}),
    "system.sram_bytes": Effect(10**11, "SRAM", 1),
    "system.io_bandwidth_bytes_per_s": Effect(10**7, "step", 1),
    "system.kernel_efficiency": Effect(0.1, "step", 1),
    "system.attention_efficiency": Effect(0.1, "step", 1),
    "system.segment_overhead_ps": Effect(10**12, "step", 1),
    "system.software_speed": Effect(2.0, "step", -1),
    "system.programming_ps": Effect(10**15, "start", 1),
    "system.hosts.compile_size_ps": Effect(10**15, "start", 1),
    "system.hosts.compile_element_ps": Effect(10**15, "start", 1),
    "system.hosts.process_start_ps": Effect(10**15, "start", 1),
    "system.hosts.tensor_ps": Effect(10**15, "start", 1),
    "system.hosts.send_bandwidth_bytes_per_s": Effect(1000, "start", 1),
    "system.hosts.save_start_ps": Effect(10**15, "checkpoint", 1),
    "system.hosts.save_bandwidth_bytes_per_s": Effect(1000, "checkpoint", 1),
    "memoryx.weight_servers": Effect(8, "step", 1),
    "memoryx.bandwidth_bytes_per_s": Effect(10**7, "step", 1),
    "memoryx.dram_bytes": Effect(10**5, "step", 1, {**FLASH, "memoryx.dram_bytes": 10**12}),
    "memoryx.memory_bandwidth_bytes_per_s": Effect(10**7, "waits for weights", 1),
    "memoryx.flash_bytes": Effect(10**12, "step", -1, NO_DRAM),
    "memoryx.flash_bandwidth_bytes_per_s": Effect(10**7, "step", 1, FLASH),
    "memoryx.flops_per_s": Effect(10**7, "step", 1),
    "memoryx.prefetch_buckets": Effect(1, "step", 1, FAR),
    "memoryx.drain_buckets": Effect(1, "step", 1, FAR),
    "swarmx.fan_out": Effect(2, "step", 1),
    "swarmx.node_ports": Effect(12, "SwarmX nodes", -1),
    "swarmx.port_bandwidth_bytes_per_s": Effect(10**9, "SwarmX nodes", 1),
    "swarmx.link_bandwidth_bytes_per_s": Effect(10**7, "step", 1),
    "swarmx.hop_latency_ps": Effect(10**9, "step", 1),
    "input.workers_per_system": Effect(8, "step", -1, SLOW_LOADER),
    "input.bandwidth_bytes_per_s": Effect(10**5, "step", 1),
    "input.latency_ps": Effect(10**12, "first step", 1),
    "input.prefetch_batches": Effect(1, "step", 1, {"input.latency_ps": 10**12}),
    "jitter.seed": Effect(2, "step", 1, {"jitter.kernel_sigma": 0.5}),
    "jitter.kernel_sigma": Effect(1.0, "step", 1),
    "jitter.transfer_sigma": Effect(1.0, "step", 1),
    "jitter.stragglers": Effect({"csx-1": 10}, "step", 1),
    "activations.servers": Effect(24, "energy", 1),
    "power.idle_kw": Effect(1.0, "energy", -1),
    "power.load_kw": Effect(99.0, "energy", 1),
    "power.host_kw": Effect(1.0, "energy", 1),
    "power.memoryx_hosts": Effect(24, "energy", 1),
    "power.hosts_per_system": Effect(1.0, "energy", -1),
    "power.pue": Effect(1.1, "energy", -1),
    "power.grid_kg_per_kwh": Effect(1.0, "carbon", 1),
    "power.kwh_usd": Effect(1.0, "money", 1),
    "power.system_hour_usd": Effect(1.0, "money", -1),
}
LOADERS = {
    f"input.{kind}.{key}": kind
    for kind in ("hdf5", "csv", "npz", "jpeg", "other")
    for key in ("sample_ps", "element_ps", "file_ps")
}
"""Kind of files by field."""

ELSEWHERE = {
    "name",
    "systems",
    "system.name",
    "system.defects.map",
    "activations.memory_bytes",
    "activations.link_bandwidth_bytes_per_s",
}
"""No numbers, or those of activations that a wafer has no room for, of which one layer has none;
other tests have them (tests/unit/waferstream/machine/sram, tests/unit/csnode)."""


@cache
def program(stream: str) -> ScalableProgram:
    """A training step of one layer with attention."""

    def compiled(size: int) -> Compiled:
        example = training_example(MODEL, micro_batch_size=size)
        request = CompileRequest(StreamPrecision(stream, stream), size, 1, "a test")
        return compile_step(example.step, example.model, example.inputs, request)[0]

    return capture_both(compiled)


def outcome(
    settings: Settings, *, kind: Any = "hdf5", stream: str = "bfloat16"
) -> dict[str, float]:
    """What six systems take on a machine with these numbers, from files of one kind."""
    machine = machine_with(settings)
    simulator = Simulator(
        program(stream),
        machine,
        machine.memoryx.weight_servers,
        update=UpdateCost(state_bytes=8, flops=15),
        loading=Loading(kind, num_files=2),
    )
    study = Study(simulator, 48, 128, MicroBatchPolicy(2))
    detail = study.detail(6)
    (point,) = study.curve((6,))
    assert point.prediction is not None
    assert point.energy is not None
    return {
        "energy": point.energy.step.kwh,
        "carbon": point.energy.step.kg_co2e,
        "money": point.energy.step.usd,
        "step": point.emulated.step_ps,
        "first step": point.prediction.steps_ps[0],
        "waits for weights": point.emulated.attribution_ps.weights,
        "start": detail.start_up.total_ps,
        "checkpoint": checkpoint_ps(machine.system.hosts, 10**6),
        "peak": machine.system.peak_flops_per_s,
        "SRAM": detail.sram_capacity_bytes,
        "SwarmX nodes": point.prediction.swarmx_nodes,
    }


def of(quantity: str, settings: Settings, **more: Any) -> float:
    """One of them; without end where the model does not fit."""
    try:
        return outcome(settings, **more)[quantity]
    except ApplianceResourceExhausted:
        return math.inf


def machine_with(settings: Settings) -> MachineSpec:
    """Of cluster.yaml with these keys."""
    machine: dict[str, Any] = {}
    for field, value in settings.items():
        *sections, key = field.split(".")
        inner = machine
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    return validate(ClusterSpec, {"machine": machine}, "cluster.yaml").machine


@pytest.mark.parametrize("field", EFFECTS)
def test_a_number_moves_what_it_should(field: str) -> None:
    """In the right direction, all else equal."""
    value, quantity, sign, context, stream = EFFECTS[field]
    before, after = (
        of(quantity, settings, stream=stream) for settings in (context, {**context, field: value})
    )
    assert sign * after > sign * before


@pytest.mark.parametrize("field", LOADERS)
def test_a_loader_counts_where_it_loads(field: str) -> None:
    """It makes a step longer that reads its kind of files, and no other."""
    slow, kind = {field: 10**10}, LOADERS[field]
    other = "csv" if kind != "csv" else "npz"
    assert of("step", slow, kind=kind) > of("step", {}, kind=kind)
    assert of("step", slow, kind=other) == of("step", {}, kind=other)


@pytest.mark.parametrize("system", ["CS-2", "CS-3"])
def test_every_number_counts_or_says_where(system: str) -> None:
    """A source ends with "kernels only" where, and only where, a number moves nothing here."""
    machine = machine_with({"system.name": system})
    sources = {
        name: number.source for name, number in numbers(machine).items() if name not in ELSEWHERE
    }
    for_kernels = {name for name, text in sources.items() if text.endswith("kernels only")}
    assert sources.keys() - for_kernels == {*EFFECTS, *LOADERS}
    for stream in ("bfloat16", "float32"):
        before = outcome({}, stream=stream)
        for name in for_kernels:
            assert outcome({name: 8}, stream=stream) == before
