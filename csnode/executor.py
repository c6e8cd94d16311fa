"""Executes segment steps of one program on a CS node: kernels on the lanes of the host.

The micro-batches of a round run segment by segment, up to ``lanes`` side by side, each on one
thread. Threads never split a kernel, so their number never changes a bit. A segment may start while
the one before still runs: a micro-batch follows itself, not the others, and no lane waits for the
end of a segment. From one call to the next the executor keeps the indexes of sparse weights alone
(csnode.streamed_weights): gradients travel as the values that these place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch

from csnode.devices.device import Device, gpu_memory_exhausted
from csnode.engine.binding import built
from csnode.engine.places import GradientPlaces
from csnode.engine.spec import TORCH, EngineSpec
from csnode.gradients import GradientSums
from csnode.lanes import Executed, Lanes, Passed, Running
from csnode.micro_batch import MicroBatch
from csnode.stash import Key, Left
from csnode.streamed_weights import StreamedWeights
from waferstream.core.errors import ApplianceError, WaferStreamError
from waferstream.core.messages.payload import Payload, byte_ranges
from waferstream.core.optimizer import LOSS_SCALE_INPUT
from waferstream.core.program.label_means import SEED_INPUT
from waferstream.core.program.program import Program
from waferstream.core.program.schedule import SegmentStep
from waferstream.core.program.segment import Segment
from waferstream.core.rng import stream_key
from waferstream.core.roles.activities import Place
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Job, RoleContext
from waferstream.numerics.half_types import nearest
from waferstream.numerics.keyed_random import BATCH_KEY_INPUT, KEY_INPUT
from waferstream.numerics.precision import DTYPES, dtype_in_program

_NOT_DETERMINISTIC = "does not have a deterministic implementation"
"""What torch says of such an op under csnode.devices.cuda.reproducible."""

Examine = Callable[[Segment, MicroBatch], str | None]
"""Returns the name of a micro-batch's first value that is not finite (csnode.results)."""


@dataclass(frozen=True)
class _Work:
    """What every micro-batch of one started segment shares.

    ``sums`` are given by their owner; ``written`` are the weights whose gradients kernels write
    into the slabs of sums. ``measured`` is the largest micro-batch of the round; its bytes
    are reported as the peak. ``back`` has come back from activation servers.
    """

    step: int
    segment_step: SegmentStep
    weights: Mapping[str, torch.Tensor]
    sums: Mapping[int, GradientSums]
    written: Set[str]
    measured: MicroBatch | None
    loss_scale: float | None
    examine: Examine | None
    back: Mapping[Key, Payload]


class Executor:
    """One installed program, ready to execute: its kernels are built, its schedule is known."""

    def __init__(
        self,
        installation: Installation,
        seed: int,
        context: RoleContext,
        lanes: Lanes,
        device: Device,
        engine: EngineSpec = TORCH,
    ) -> None:
        self.program = installation.program
        self._installed_rounds = self.rounds = installation.rounds
        self.schedule = installation.schedule
        self.keepers = installation.keepers
        self.trips = installation.trips
        self._bytes_elsewhere = installation.bytes_elsewhere
        first = self.program.num_results
        self._tensors = frozenset(
            (
                *(result.position for result in self.program.tensor_results),
                *range(first, first + len(self.program.state.contributions)),
            )
        )
        self._weights = StreamedWeights(self.program, engine)
        patterns = self._weights.sparse.gradient_patterns
        self._places = GradientPlaces(set())
        self._segments = [sized.segments for sized in installation.sized]
        self._away = [
            [trip.values_of(segments) for trip in self.trips.all] for segments in self._segments
        ]
        self._leaf_dtype = DTYPES[self.program.gradient_dtype]
        places = None if device.is_staged else self._places
        self._kernels = [
            [
                built(
                    *(kernel, segment, engine, patterns, device.torch_device, places),
                    sized.fused_of(segment.index),
                )
                for kernel, segment in zip(sized.kernels, sized.segments, strict=True)
            ]
            for sized in installation.sized
        ]
        self._pieces = _planned_pieces(self.program)
        self._seed = seed
        self._device = device
        self._cores, self._arena = context.cores, context.arena
        self._lanes = lanes

    def begin(self, job: Job) -> None:
        """Take the rounds of a job."""
        self._device.begin()
        self.rounds = job.rounds_of(self._installed_rounds)

    def unpack(
        self,
        step: int,
        index: int,
        payload: Payload,
        label_weights: Sequence[float] = (),
        state: Mapping[str, torch.Tensor] = MappingProxyType({}),
    ) -> MicroBatch:
        """Copy the inputs of a micro-batch out of their payload, which can be released then.

        ``label_weights`` are its weights in the program's means over labels, ``state`` the buffers
        that the program reads, and the inputs of the step.
        """
        flat = payload.view(torch.uint8)
        values: dict[str, object] = {name: self._held(value) for name, value in state.items()}
        numbers = [each.name for each in self.program.step_inputs if each.is_number]
        values |= {name: state[name].item() for name in numbers}
        values |= {
            spec.name: self._held(flat[start:stop].clone().view(DTYPES[spec.dtype])).view(
                spec.shape
            )
            for spec, start, stop in byte_ranges(self.program.inputs_of(index))
        }
        values[KEY_INPUT] = stream_key(self._seed, step, index)
        values[BATCH_KEY_INPUT] = stream_key(self._seed, step, 0)
        results = (*range(self.program.num_results), *self.program.guarded)
        weights = {place: self.program.weights_of(place)[index] for place in results}
        has_labels = True
        for mean, weight in zip(self.program.label_means, label_weights, strict=True):
            weights.update(dict.fromkeys(mean.results, weight))
            if mean.is_loss:
                values[SEED_INPUT] = weight / self.program.num_micro_batches
                has_labels = weight != 0.0
        return MicroBatch(
            index, values, weights=weights, has_labels=has_labels, tensors=self._tensors
        )

    def start(
        self,
        step: int,
        segment_step: SegmentStep,
        payloads: Mapping[int, Payload],
        batches: Sequence[MicroBatch],
        *,
        loss_scale: float | None = None,
        examine: Examine | None = None,
        after: Running | None = None,
        back: Mapping[Key, Payload] = MappingProxyType({}),
    ) -> Running:
        """Let the lanes run one segment for the micro-batches of a round and add their gradients.

        Args:
            step: The training or evaluation step, for traces and errors.
            segment_step: What to run.
            payloads: The weights of the segment, by bucket; read until the segment is finished.
            batches: Their values are updated in place.
            loss_scale: The dynamic loss scale of the step, if it has one and it is known by now.
            examine: Looks for values that are not finite.
            after: The segment before, of the same micro-batches, if it may still run.
            back: What the segment reads and was away; read until the segment is finished.
        """
        needed = {b.index: payloads[b.index] for b in segment_step.weights}
        placed = self._device.place(needed)
        with self._device.computing():
            weights = self._weights.read(segment_step, needed, placed)
        total, node_of = self.program.num_micro_batches, self.rounds.node_of
        indexes = self._weights.sparse.gradient_indexes
        sums = {
            owner: GradientSums(
                segment_step.gradients, total, self._device.memory, indexes, self._leaf_dtype
            )
            for owner in dict.fromkeys(node_of(batch.index) for batch in batches)
        }
        # Where nothing is added, a gradient need not be copied. Otherwise no time is saved.
        written = self._places.weights if len(batches) == 1 else frozenset[str]()
        largest = min(batches, key=lambda one: self.program.is_short(one.index), default=None)
        work = _Work(step, segment_step, weights, sums, written, largest, loss_scale, examine, back)
        befores = [None] * len(batches) if after is None else after.passed
        passed = [
            self._lanes.submit(partial(self._pass_one, work, batch, before), before)
            for batch, before in zip(batches, befores, strict=True)
        ]
        weight_bytes = sum(payload.num_bytes for payload in needed.values())
        departure = self._device.depart(sums)
        return Running(segment_step, passed, departure, weight_bytes, self._device.is_staged)

    def _pass_one(self, work: _Work, batch: MicroBatch, before: Future[Passed] | None) -> Passed:
        """Run a segment for one micro-batch on a lane; offer its gradients to the sum of its owner.

        ``before`` is the same micro-batch in the segment before, which has ended.
        """
        if before is not None:
            before.result()  # or its error
        if work.loss_scale is not None:
            batch.values[LOSS_SCALE_INPUT] = work.loss_scale
        segment = self.segment(work.segment_step, batch)
        kernel = self._kernels[self.program.is_short(batch.index)][segment.index]
        weights = [work.weights[name] for name in segment.weights]
        with self._cores.lease(), self._device.computing():
            start = self._device.mark()
            for trip in self.trips.returning.get(segment.index, ()):
                batch.come_back(trip, work.back[batch.index, trip])
            sums = work.sums[self.rounds.node_of(batch.index)]
            memory = sums.allocate(work.written)
            try:
                with self._places.at(memory.tensors):
                    batch.run(segment, kernel, weights)
            except Exception as error:
                where = f"{work.segment_step.label}, micro-batch {batch.index} of step {work.step}"
                raise _kernel_failed(where, error) from error
            found = None if work.examine is None else work.examine(segment, batch)
            batch.is_finite &= found is None  # the next segment may run before this is known
            sums.offer(batch.index, batch.take_gradients(), memory)
            stop = self._device.mark()
        is_measured = batch is work.measured and work.segment_step.stashes
        held_bytes = self.held_bytes(batch, segment.index) if is_measured else 0
        batch.drop(segment.drops)
        left = self._leave(segment.index, batch)
        round_index = self.rounds.round_of(batch.index)
        place = Place(self.program.kind, work.step, round_index, segment.layer, segment.phase)
        return Passed(batch.index, place, start, stop, found, held_bytes, left)

    def _leave(self, segment: int, batch: MicroBatch) -> tuple[Left, ...]:
        """Return what of a micro-batch leaves after a segment."""
        trips = self.trips.leaving.get(segment, ())
        if not trips:
            return ()
        names = self._away[self.program.is_short(batch.index)]
        with self._cores.lease(), self._device.computing():
            return tuple(
                Left((batch.index, trip), batch.leave(trip, names[trip], self._arena))
                for trip in trips
            )

    def finish(self, running: Running) -> Executed:
        """Wait until a segment has run; return what it left, or raise what its kernels raised."""
        passed = [each.result() for each in running.passed]
        gradients = running.departure.arrive()  # from now on the device is done, too
        return Executed(
            [each.interval() for each in passed],
            gradients,
            [each.not_finite for each in passed],
            max((each.held_bytes for each in passed), default=0),
            [left for each in passed for left in each.left],
        )

    def segment(self, segment_step: SegmentStep, batch: MicroBatch) -> Segment:
        """Return the segment of a step for micro-batches of one's size."""
        return self._segments[self.program.is_short(batch.index)][segment_step.segment]

    def _held(self, values: torch.Tensor) -> torch.Tensor:
        """Return an input as kernels hold it: the half type in fp32 where the program says so."""
        half = self.program.stream_dtype
        is_held = self.program.holds_fp32 and values.dtype == dtype_in_program(half)
        return self._device.hold(nearest(values, half) if is_held else values)

    def held_bytes(self, batch: MicroBatch, segment: int) -> int:
        """Return the bytes of a micro-batch on the wafer after a segment.

        Where kernels hold the half type in fp32, or another device holds what they stash, what it
        takes is planned instead of measured.
        """
        num_bytes = batch.num_bytes
        if self.program.widening > 1 or self._device.is_staged:
            held = {self._pieces[name] for name in batch.values if name in self._pieces}
            num_bytes = sum(num_bytes for _, num_bytes in held)
        return max(0, num_bytes - self._bytes_elsewhere[segment])


def _planned_pieces(program: Program) -> dict[str, tuple[int, int]]:
    """Return, for each stashed value or input, a number of its memory and the bytes of it."""
    pieces = [piece for segment in program.segments for piece in segment.stash]
    found = {
        name: (index, piece.footprint.of(program.micro_batch_size))
        for index, piece in enumerate(pieces)
        for name in piece.values
    }
    inputs = enumerate(program.inputs_of(0), len(pieces))
    return {**found, **{spec.name: (index, spec.num_bytes) for index, spec in inputs}}


def _kernel_failed(where: str, error: Exception) -> WaferStreamError:
    if isinstance(error, torch.OutOfMemoryError):
        return gpu_memory_exhausted(where, error)
    if _NOT_DETERMINISTIC in str(error):
        return ApplianceError(
            "an op has no kernel on the GPU that gives the same bits each time",
            code="device-op-not-deterministic",
            where=where,
            value=str(error).partition(". ")[0],
            rule="weights do not depend on the shape of the cluster",
            remedy="write the layer with other ops, or set runtime.device: cpu",
        )
    return ApplianceError(
        "a kernel failed",
        code="kernel-failed",
        where=where,
        value=repr(error),
        remedy="inspect that micro-batch of the data: often an index is beyond its table",
    )
