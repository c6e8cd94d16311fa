"""Intervals of training steps and of their start-up on the machine of cluster.yaml."""

from __future__ import annotations

from collections.abc import Iterator

from waferstream.core.config import Config
from waferstream.core.program.program import Program
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.intervals.interval import AnyInterval
from waferstream.machine.intervals.residuals import interval_of
from waferstream.machine.intervals.setting import training_setting

_OTHER_SECTIONS = ("power", "hosts")  # of which a step takes nothing
_CAPACITIES = ("systems", "dram_bytes", "flash_bytes", "weight_servers", "memory_bytes")
"""Keys that decide what fits, not what a step takes."""


def step_interval(
    machine: MachineSpec, program: Program, batch_size: int, num_csx: int
) -> AnyInterval:
    """Return the interval of the throughput of a training step of ``batch_size`` samples.

    It is unknown for a machine with numbers that nobody measured.
    """
    family = f"training {machine.system.name}"
    return _interval(family, machine, program, program.tokens_per_sample, batch_size, num_csx)


def start_up_interval(machine: MachineSpec, program: Program, num_csx: int) -> AnyInterval:
    """Return the interval of the time to the first step: that of compiling, its longest part."""
    return _interval("start-up compile", machine, program, None, None, num_csx)


def _interval(
    family: str,
    machine: MachineSpec,
    program: Program,
    tokens: int | None,
    batch_size: int | None,
    num_csx: int,
) -> AnyInterval:
    return interval_of(
        training_setting(
            family,
            machine_name(machine),
            machine.system.peak_flops_per_s,
            sum(spec.num_elements for spec in program.parameters),
            tokens,
            batch_size,
            num_csx,
        )
    )


def machine_name(machine: MachineSpec) -> str:
    """Return the name of a system, with the numbers that cluster.yaml has changed."""
    published = dict(_values(machine.published))
    changed = [key for key, value in _values(machine) if value != published[key]]
    name = machine.system.name
    return f"{name} with another {', '.join(changed)}" if changed else name


def _values(section: Config, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value that decides the time of a step, by its dotted key."""
    for key, value in section:
        if isinstance(value, Config):
            if key not in _OTHER_SECTIONS:
                yield from _values(value, f"{prefix}{key}.")
        elif key not in _CAPACITIES:
            yield f"{prefix}{key}", value
