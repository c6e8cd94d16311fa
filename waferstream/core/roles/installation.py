"""A program as it is installed in a running cluster: every role keeps the part it needs.

A cluster starts with parameters alone; programs (training, evaluation) are installed as they are
compiled, over the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from waferstream.core.messages.payload import payload_bytes
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.fused import FusedKernel
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import UNKNOWN_LOADING, Loading, Program, ProgramKind
from waferstream.core.program.schedule import (
    Rounds,
    Schedule,
    schedule_of,
)
from waferstream.core.program.segment import Segment
from waferstream.core.program.stream_plan import StreamPlan
from waferstream.core.program.trips import NO_TRIPS, Trips
from waferstream.core.roles.names import replica_name, server_name


@dataclass(frozen=True)
class InputFeed:
    """Where the batches of a program come from.

    ``source`` is run on the input worker and returns a loader; ``leaves`` picks, of a batch's
    tensors in pytree order, those that are the program's inputs; ``loading`` describes the pipeline
    to the timing models; ``seed`` starts the loader's random numbers, on every worker alike. Step s
    of training reads global batch s - 1 + ``offset``: a loader may go on from another run.
    """

    source: Callable[[], Any]
    leaves: tuple[int, ...]
    loading: Loading = UNKNOWN_LOADING
    seed: int = 0
    offset: int = 0

    def batch_of(self, kind: ProgramKind, step: int) -> int:
        """Return the global batch, counted from 0, that a step of a job reads."""
        return step - 1 + (self.offset if kind.updates else 0)


@dataclass(frozen=True)
class SizedKernels:
    """Segments and kernels of a step for micro-batches of one size.

    ``label_counts`` counts the labels of a micro-batch, where the step has means over labels;
    ``state_update`` computes the buffers that the step writes; ``fused`` are the kernels that run
    instead of those of the segments, where there are some.
    """

    segments: tuple[Segment, ...]
    kernels: tuple[KernelSource, ...]
    label_counts: KernelSource | None = None
    state_update: KernelSource | None = None
    fused: tuple[FusedKernel | None, ...] = ()

    def fused_of(self, segment: int) -> FusedKernel | None:
        """Return the fused kernel of a segment, if it has one."""
        return self.fused[segment] if self.fused else None


@dataclass(frozen=True)
class GradientKernel:
    """What MemoryX makes of the gradient of one parameter before it is unscaled and clipped."""

    parameter: str
    source: KernelSource
    reads_weight: bool  # whether the master is the second operand


@dataclass(frozen=True)
class Installation:
    """One program with its kernels, streams, rounds, input and optimizer."""

    program: Program
    kernels: tuple[KernelSource, ...]
    plan: StreamPlan
    rounds: Rounds
    feed: InputFeed
    optimizer: OptimizerSpec | None  # None where nothing is trained
    label_counts: KernelSource | None = None  # counts the labels of a micro-batch
    whole: KernelSource | None = None  # computes inputs that are values of the whole batch
    guards: tuple[KernelSource, ...] = ()  # make of a loss what Program.guards do
    state_update: KernelSource | None = None  # computes the buffers that the step writes
    norms: KernelSource | None = None  # computes the results that depend on norms
    gradient_kernels: tuple[GradientKernel, ...] = ()
    short: SizedKernels | None = None  # of the micro-batches that have one sample less
    has_replicas: bool = False  # whether every weight server has one
    most_per_node: int = 1  # micro-batches of a round that fit a host
    trips: Trips = NO_TRIPS  # of activations that nodes have no room for
    bytes_elsewhere: tuple[int, ...] = ()  # at each segment, on a node but not on a wafer
    fused: tuple[FusedKernel | None, ...] = ()  # kernels that run instead of those of the segments

    @property
    def kind(self) -> ProgramKind:
        return self.program.kind

    @property
    def sized(self) -> tuple[SizedKernels, ...]:
        """Segments and kernels of full micro-batches, then those of short ones, if there are."""
        full = SizedKernels(
            self.program.segments,
            self.kernels,
            self.label_counts,
            self.state_update,
            self.fused,
        )
        return (full,) if self.short is None else (full, self.short)

    @property
    def payload_bytes(self) -> int:
        """Size of the largest payload of any message."""
        buckets = (*self.plan.weights, *self.plan.gradients)
        contributions = payload_bytes(self.program.state.contributions)
        return max(
            payload_bytes(self.program.inputs_of(0)),
            *(b.num_bytes for b in buckets),
            contributions * self.program.num_micro_batches,  # of a StepDone
            *(trip.num_bytes for trip in self.trips.all),
        )

    @cached_property
    def keepers(self) -> tuple[str, ...]:
        """The roles that keep the results of a protected job.

        These are the weight servers that update weights, the first one if none does, and their
        replicas.
        """
        servers = sorted({bucket.server for bucket in self.plan.gradients}) or [0]
        replicas = map(replica_name, servers) if self.has_replicas else ()
        return (*map(server_name, servers), *replicas)

    @cached_property
    def schedule(self) -> Schedule:
        """The segment steps of one round, read by nodes and weight servers alike."""
        return schedule_of(self.program, self.plan)
