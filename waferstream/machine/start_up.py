"""Time around the steps: from the command to the first step, and to a checkpoint.

A job compiles, unless its program is in the cache. The compiler tries micro-batch sizes one after
the other; equal layers are compiled once, so the time depends on their width and not on their
number. Then the user node sends the initial weights to MemoryX, tensor by tensor in fp32, and waits
until the systems are programmed, all side by side. A checkpoint is one HDF5 file, written by one
process. (Public logs: site guides and training series of ALCF, DABench-LLM.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from statistics import median_low

from waferstream.core.program.micro_batches import MicroBatchPolicy, share_of
from waferstream.core.program.program import MASTER_BYTES, Program
from waferstream.core.units import format_ps, transfer_ps
from waferstream.machine.hardware import HostSpec, MachineSpec

MOST_SIZES = 6
"""Sizes that the compiler tries: the largest that cut a system's share evenly, in public logs."""


@dataclass(frozen=True)
class StartUp:
    """Time from the command to the first step."""

    compile_ps: int
    programming_ps: int
    initial_weights_ps: int

    @property
    def total_ps(self) -> int:
        """The sum of the three, which logs show one after the other."""
        return self.compile_ps + self.initial_weights_ps + self.programming_ps

    def __str__(self) -> str:
        return (
            f"compile {format_ps(self.compile_ps)} unless cached, "
            f"initial weights {format_ps(self.initial_weights_ps)}, "
            f"programming {format_ps(self.programming_ps)}"
        )


def start_up(machine: MachineSpec, program: Program, sizes: Sequence[int] = ()) -> StartUp:
    """Return the start-up of a program whose compiler tries ``sizes``; none if it is cached."""
    system = machine.system
    elements = sum(spec.num_elements for spec in program.parameters)
    return StartUp(
        compile_ps=compile_ps(system.hosts, sizes, layer_elements(program)),
        programming_ps=system.programming_ps,
        initial_weights_ps=initial_weights_ps(
            system.hosts, len(program.parameters), elements * MASTER_BYTES
        ),
    )


def sizes_tried(
    policy: MicroBatchPolicy, batch_size: int, num_csx: int, largest: int | None = None
) -> tuple[int, ...]:
    """Return the micro-batch sizes that the compiler tries: one if the policy states it.

    Sizes above the ``largest`` that fits are given up before they take time.
    """
    share = share_of(batch_size, num_csx)
    if policy.name in ("integer", "none"):
        return (policy.size(batch_size, num_csx),)
    most = share if largest is None else min(share, largest)
    even = (size for size in range(most, 1, -1) if share % size == 0)
    return tuple(islice(even, MOST_SIZES)) or (share,)


def layer_elements(program: Program) -> int:
    """Return the elements that a layer reads for one sample: the median of its products."""
    products = [
        prod(work.shape[:3])
        for segment in program.segments
        for work in segment.work
        if segment.phase == "forward" and work.kind == "matmul" and work.streams
    ]
    return median_low(products) // program.micro_batch_size if products else 0


def compile_ps(hosts: HostSpec, sizes: Sequence[int], elements: int) -> int:
    """Return the time to try micro-batch sizes of a layer that reads so many elements a sample."""
    tried = sum(sizes) * elements
    return len(sizes) * hosts.compile_size_ps + tried * hosts.compile_element_ps


def initial_weights_ps(hosts: HostSpec, num_tensors: int, num_bytes: int) -> int:
    """Return the time to send tensors to MemoryX."""
    start_ps = hosts.process_start_ps + num_tensors * hosts.tensor_ps
    return start_ps + transfer_ps(num_bytes, hosts.send_bandwidth_bytes_per_s)


def checkpoint_ps(hosts: HostSpec, num_bytes: int) -> int:
    """Return the time to save a checkpoint of so many bytes."""
    return hosts.save_start_ps + transfer_ps(num_bytes, hosts.save_bandwidth_bytes_per_s)


def checkpoint_bytes(num_elements: int, state_bytes_per_element: int) -> int:
    """Return the bytes of masters and optimizer state in a file (Adam in fp32: 8 per element)."""
    return num_elements * (MASTER_BYTES + state_bytes_per_element)
