"""Time around the steps: from the command to the first step, and to a checkpoint.

A job compiles, unless its program is in the cache; then the systems are programmed while the user
node sends the initial weights to MemoryX (the vendor's log reports weights sent before it waits for
device programming: ALCF user guides, example-programs). All systems are programmed side by side.

Weights leave the user node as fp32 through processes that run side by side, after each has
started. A checkpoint is one HDF5 file, written by one process. Software before release 2 sent
weights an order of magnitude slower than later software, at the rate at which one process writes
checkpoints, so the model sends them through one process (T0090, release 1.7: no calibration row of
that generation exists).
"""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.core.program.program import MASTER_BYTES
from waferstream.core.units import format_ps, transfer_ps
from waferstream.machine.hardware import MachineSpec, StartUpSpec


@dataclass(frozen=True)
class StartUp:
    """Time from the command to the first step."""

    compile_ps: int
    programming_ps: int
    initial_weights_ps: int

    @property
    def total_ps(self) -> int:
        """Compiling, then the longer of programming and sending weights."""
        return self.compile_ps + max(self.programming_ps, self.initial_weights_ps)

    def __str__(self) -> str:
        return (
            f"compile {format_ps(self.compile_ps)} unless cached, "
            f"programming {format_ps(self.programming_ps)}, "
            f"initial weights {format_ps(self.initial_weights_ps)}"
        )


def start_up(
    machine: MachineSpec, num_elements: int, num_segments: int, *, is_compiled: bool = False
) -> StartUp:
    """Return the start-up of a model of ``num_elements`` parameters.

    With ``is_compiled`` its program is in the compile cache.
    """
    return StartUp(
        compile_ps=0 if is_compiled else compile_ps(machine.start_up, num_segments),
        programming_ps=machine.system.programming_ps,
        initial_weights_ps=initial_weights_ps(machine.start_up, num_elements),
    )


def compile_ps(spec: StartUpSpec, num_segments: int) -> int:
    """Return the time to compile; published rows only say minutes to an hour."""
    return spec.compile_ps + num_segments * spec.compile_segment_ps


def initial_weights_ps(spec: StartUpSpec, num_elements: int, *, release: int = 2) -> int:
    """Return the time to send the weights to MemoryX, by the software's major release."""
    bandwidth = (
        spec.storage_bandwidth_bytes_per_s if release < 2 else spec.transfer_bandwidth_bytes_per_s
    )
    return spec.transfer_start_ps + transfer_ps(initial_weights_bytes(num_elements), bandwidth)


def checkpoint_ps(spec: StartUpSpec, num_elements: int, state_bytes_per_element: int) -> int:
    """Return the time to save masters and optimizer state (Adam in fp32: 8 bytes per element)."""
    num_bytes = checkpoint_bytes(num_elements, state_bytes_per_element)
    return transfer_ps(num_bytes, spec.storage_bandwidth_bytes_per_s)


def initial_weights_bytes(num_elements: int) -> int:
    """Return the bytes of the initial weights, in fp32."""
    return num_elements * MASTER_BYTES


def checkpoint_bytes(num_elements: int, state_bytes_per_element: int) -> int:
    """Return the bytes of masters and optimizer state in a file."""
    return num_elements * (MASTER_BYTES + state_bytes_per_element)
