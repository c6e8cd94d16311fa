"""The machine of cluster.yaml and the sources of its numbers."""

from typing import Any

import pytest

from tests.support.errors import raises
from tests.support.programs.small_programs import program, segment
from tests.support.timing.machine_sources import numbers
from waferstream.core.config import Config, validate
from waferstream.core.errors import ConfigError
from waferstream.core.program.segment import OpWork
from waferstream.machine.cost import segment_costs
from waferstream.machine.hardware import (
    CS2,
    CS3,
    WSE3,
    FabricSpec,
    MachineSpec,
    WaferSpec,
    override,
)
from waferstream.machine.hardware.inputs import LoaderSpec
from waferstream.machine.hardware.machine import LEAST, MOST


def machine(**sections: Any) -> MachineSpec:
    return validate(MachineSpec, sections, "cluster.yaml")


def test_systems_are_chosen_by_name() -> None:
    """The names of the two real systems give their presets; a CS-2 is the default."""
    assert machine() == machine(system="CS-2")
    assert machine(system="CS-2").system == CS2
    assert machine(system="CS-3").system == CS3


def test_peak_flops_are_the_published_ones() -> None:
    """7.5 PFLOP/s on a CS-2 and 15.6 on a CS-3, dense fp16."""
    assert pytest.approx(7.5e15, rel=0.005) == CS2.peak_flops_per_s
    assert pytest.approx(15.6e15, rel=0.005) == CS3.peak_flops_per_s


def test_single_numbers_of_a_system_can_be_changed() -> None:
    """Keys that a mapping does not give are as in the system that it names."""
    changed = machine(system={"name": "CS-3", "io_bandwidth_bytes_per_s": 1.5e12}).system
    assert changed == CS3.model_copy(update={"io_bandwidth_bytes_per_s": 1_500_000_000_000})
    assert machine(system={"clock_hz": 7}).system == CS2.model_copy(update={"clock_hz": 7})


def numeric_fields() -> list[tuple[str, str]]:
    parts = {part: getattr(MachineSpec(), part) for part in MachineSpec.model_fields}
    return [(part, key) for part, spec in parts.items() if isinstance(spec, Config)
            for key in type(spec).model_fields if key != "name"]  # fmt: skip


@pytest.mark.parametrize(("part", "key"), numeric_fields())
def test_impossible_hardware_is_refused(part: str, key: str) -> None:
    """No number may be negative; only times, prices, options and spreads may be zero."""
    free = {"flash_bytes", "seed", "grid_kg_per_kwh", "servers"}
    may_be_zero = key.endswith(("_ps", "_sigma", "_usd")) or key in free
    for value in (-1,) if may_be_zero else (-1, 0):
        with pytest.raises(ConfigError) as refused:
            machine(**{part: {key: value}})
        assert f"{part}.{key}" in refused.value.what


@pytest.mark.parametrize(
    ("sections", "code", "named"),
    [
        ({"system": "CS-4"}, "unknown-system", "CS-4"),
        ({"system": {"name": "CS-1"}}, "unknown-system", "CS-1"),
        ({"system": {"name": ["CS-2"]}}, "unknown-system", "CS-2"),
        ({"system": 3}, "wrong-type", "system"),
        ({"input": {"csv": {"sampel_ps": 5}}}, "unknown-key", "sample_ps"),
        ({"system": {"corse": 1}}, "unknown-key", "cores"),
        ({"system": {"fabric": {"columms": 5}}}, "unknown-key", "columns"),
        ({"memoryx": {"flash": 5}}, "unknown-key", "memoryx.flash"),
        ({"swarmx": {"fan_out": 1}}, "out-of-range", "swarmx.fan_out"),
        ({"swarmx": {"fan_out": 6}}, "fan-out-exceeds-ports", "swarmx.fan_out"),
        ({"swarmx": {"node_ports": 2}}, "fan-out-exceeds-ports", "swarmx.node_ports"),
        ({"swarmx": {"hop_latency_ps": float("nan")}}, "out-of-range", "hop_latency_ps"),
        ({"jitter": {"stragglers": {"node-1": 2}}}, "unknown-role", "wgt-N"),
        ({"jitter": {"stragglers": {"csx-1": 0.5}}}, "straggler-factor-out-of-range", "1000000"),
        ({"jitter": {"stragglers": {"csx-1": 1e300}}}, "straggler-factor-out-of-range", "1000000"),
        ({"jitter": {"kernel_sigma": 1e6}}, "out-of-range", "jitter.kernel_sigma"),
        ({"system": {"kernel_efficiency": 1.5}}, "out-of-range", "kernel_efficiency"),
        ({"system": {"fabric": {"columns": 5000}}}, "grid-larger-than-wafer", "system.cores"),
        ({"system": {"name": "CS-3", "cores": 7}}, "grid-larger-than-wafer", "CS-3"),
        ({"system": {"sram_bytes": 10**30}}, "out-of-range", "sram_bytes"),
        ({"memoryx": {"weight_servers": 10**6}}, "out-of-range", "weight_servers"),
        ({"memoryx": {"prefetch_buckets": 10**6}}, "out-of-range", "prefetch_buckets"),
        ({"memoryx": {"drain_buckets": 10**6}}, "out-of-range", "drain_buckets"),
    ],
)
def test_mistakes_in_a_machine_are_named(sections: dict[str, Any], code: str, named: str) -> None:
    """The error carries the key or value that is wrong."""
    with raises(ConfigError, code) as refused:
        machine(**sections)
    assert named in str(refused.value)


@pytest.mark.parametrize("preset", ["CS-2", "CS-3"])
def test_every_number_has_a_status_and_a_source(preset: str) -> None:
    """Except names and process counts."""
    for name, number in numbers(machine(system=preset)).items():
        if name not in {"name", "systems", "system.name", "memoryx.weight_servers"}:
            assert number.status in {"published", "derived", "fitted", "assumed"}, name
            assert number.source, name


@pytest.mark.parametrize("kind", [FabricSpec, LoaderSpec, WaferSpec])
def test_specs_have_no_default_of_any_product(kind: type[Config]) -> None:
    """A number that a preset forgets is an error; a wafer without defects is no product."""
    optional = {key for key, info in kind.model_fields.items() if not info.is_required()}
    assert optional <= {"defects", "kernel_costs"}


def test_override_changes_single_numbers_of_sections() -> None:
    """And is checked as a spec of its own."""
    changed = override(CS3, cores=10**6, fabric={"hop_cycles": 3})
    assert changed.fabric == WSE3.model_copy(update={"hop_cycles": 3})
    assert changed == CS3.model_copy(update={"cores": 10**6, "fabric": changed.fabric})
    with pytest.raises(ConfigError):
        override(CS3, fabric={"hop_cycles": -3})


def test_loaders_change_single_numbers_of_their_presets() -> None:
    """A key that is not given is as in the preset of the kind."""
    found = machine(input={"csv": {"sample_ps": 1}}).input.csv
    assert found == MachineSpec().input.csv.model_copy(update={"sample_ps": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("clock_hz", 10**400),
        ("segment_overhead_ps", 10**31),
        ("software_speed", 1e-310),
        ("kernel_efficiency", 1e-31),
        ("fabric.hop_cycles", 10**400),
        ("fabric.fma_16bit_per_cycle", 1e-310),
    ],
)
def test_numbers_beyond_floats_are_refused(key: str, value: float) -> None:
    """They are beyond any machine, and products of them soon beyond floats."""
    system: dict[str, Any] = {}
    *section, name = key.split(".")
    (system.setdefault(section[0], {}) if section else system)[name] = value
    with raises(ConfigError, "number-out-of-range") as refused:
        machine(system=system)
    assert f"system.{key}" in (refused.value.where or "")
    assert refused.value.rule


def test_step_on_the_slowest_allowed_machine_has_a_time() -> None:
    """With every rate at its smallest and every time at its largest allowed value."""
    slowest = {"kernel_efficiency": LEAST, "software_speed": LEAST, "segment_overhead_ps": MOST}
    fabric = {"fma_16bit_per_cycle": LEAST, "hop_cycles": MOST, "vector_setup_cycles": MOST}
    wafer = machine(system={**slowest, "fabric": fabric}).system
    work = OpWork("mm", "matmul", 2 * 10**12, (1, 75_000, 1024, 4096), streams=True)
    (cost,) = segment_costs(program("bfloat16", (segment(0, work=(work,)),)), wafer)
    assert cost.total_ps > 10**40
