"""Collects the gradients of one server: from subtrees to the sums that the optimizer applies.

Subtrees of a bucket arrive in any order and are added in the reduce order. The sum of the whole
batch is changed as the step says, unscaled and clamped; if gradients are clipped by their global
norm, or the loss scale is dynamic, the sums of a step wait until all servers have agreed on the
norm, and on whether all gradients are finite (NormExchange).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from memoryx.job.gradient_changes import GradientChanges
from memoryx.job.watcher import NormNotes
from memoryx.optim.clip import clip_coefficient, clip_value_, gradient_norms, total_norm
from memoryx.sparsity.masks import Masks, SparseStreams
from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.messages.messages import GradientReady, NormPartial, NormTotal
from waferstream.core.messages.partial_sum import PartialSum
from waferstream.core.messages.reduce_order import Merger
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import Program
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.roles.names import server_name
from waferstream.numerics.precision import DTYPES

Sums = dict[int, PartialSum]
"""The gradient of the whole batch, by bucket."""


@dataclass
class Collected:
    """What one message completed: sums to apply now, or this server's part of a norm."""

    sums: Sums = field(default_factory=dict)
    partial: NormPartial | None = None


class Settled(NamedTuple):
    """The sums of a step on which all servers have agreed, and by what each is to be scaled."""

    sums: Sums
    coefficient: float


class GradientCollector:
    """The gradients of one server's parameters during one job."""

    def __init__(
        self,
        server: int,
        program: Program,
        buckets: Sequence[Bucket],
        optimizer: OptimizerSpec | None,
        notes: NormNotes,
        masks: Masks,
        changes: GradientChanges,
    ) -> None:
        self._masks = masks
        self._streams = SparseStreams(masks, program.stream_dtype)
        self._server = server
        self._program = program
        self._buckets = {bucket.index: bucket for bucket in buckets}
        self._optimizer = optimizer
        self._notes = notes
        self._changes = changes
        self._position = {name: place for place, name in enumerate(program.trained)}
        self._mergers: dict[tuple[int, int], Merger[PartialSum]] = {}  # by step and bucket
        self._waiting: dict[int, Sums] = {}  # by step, until all servers agree
        self._norms: dict[int, dict[int, float]] = {}  # of gradients, by step and master position
        self._overflowed: set[int] = set()  # steps with a gradient that is not finite

    def take(
        self,
        message: GradientReady,
        release: Callable[[], None],
        loss_scale: float,
        update: int,
        weights: Mapping[str, torch.Tensor],
    ) -> Collected:
        """Add one subtree of a gradient bucket, and release it once it has been read.

        Args:
            message: The subtree.
            release: Gives the payload back.
            loss_scale: That of the step, by which the sum is divided.
            update: The number of the step's update, on which masks depend.
            weights: The masters of the server.
        """
        whole = self._add(message, release, loss_scale, update, weights)
        if whole is None:
            return Collected()
        if not self._limits.waits_for_all:
            return Collected({message.bucket: whole})
        waiting = self._waiting.setdefault(message.step, {})
        waiting[message.bucket] = whole
        if len(waiting) < len(self._buckets):
            return Collected()
        return Collected(partial=self._partial(message.step))

    @property
    def waits_for_others(self) -> bool:
        """Whether all gradients of a step are here, but servers have not agreed on them."""
        return any(len(sums) == len(self._buckets) for sums in self._waiting.values())

    def settle(self, total: NormTotal) -> Settled:
        """Return the sums of a step, and the factor by which their norm is within the limit."""
        sums, limit = self._waiting.pop(total.step), self._limits.max_gradient_norm
        if limit is None or not total.is_finite:
            return Settled(sums, 1.0)
        return Settled(sums, clip_coefficient(total.norm, limit))

    def gradients(self, bucket: int, whole: PartialSum, update: int) -> dict[str, torch.Tensor]:
        """Return the gradient of each parameter of a bucket for update ``update``, as views.

        Those of sparse weights are the values of their non-zeros, unless the update needs all.
        """
        return self._streams.received(self._buckets[bucket], whole.flat, update)

    def pruned(self, bucket: int, whole: PartialSum, update: int) -> Mapping[str, torch.Tensor]:
        """Return whole gradients as update ``update`` takes them: zero where masked.

        Zeros that have not travelled are made when a gradient is read.
        """
        return self._masks.whole(self._values(bucket, whole, update))

    @property
    def _limits(self) -> OptimizerSpec:
        assert self._optimizer is not None, "an evaluation program has no gradients"
        return self._optimizer

    def _add(
        self,
        message: GradientReady,
        release: Callable[[], None],
        loss_scale: float,
        update: int,
        weights: Mapping[str, torch.Tensor],
    ) -> PartialSum | None:
        """Add a subtree; return the sum of the whole batch when complete, as the update takes it.

        Gradients of masked weights take no part in norms and overflows.
        """
        key = (message.step, message.bucket)
        merger = self._mergers.setdefault(key, Merger(self._program.num_micro_batches, _add))
        held = merger.offer(message.subtree, self._arrived(message, release, update))
        # A sum that must wait is copied: its sender gets the memory back at once. Only the one that
        # completes the batch is used in place, if it is fp32.
        is_used_in_place = merger.is_whole and held.flat.dtype == torch.float32
        if not (held.is_owned or is_used_in_place):
            held.move_to(_memory_like(held))
        if not merger.is_whole:
            return None
        del self._mergers[key]
        ((_, whole),) = merger.take()
        self._changes.apply(self.gradients(message.bucket, whole, update), weights)
        if loss_scale != 1.0:
            whole.flat.div_(loss_scale)
        self._notes.of_batch(message.step, self.pruned(message.bucket, whole, update))
        # Before values are clamped, which would hide an overflow.
        if self._limits.scale_rule is not None:
            values = self._values(message.bucket, whole, update).values()
            if not all(map(all_finite, values)):
                self._overflowed.add(message.step)
        if self._limits.max_gradient_value is not None:
            clip_value_([whole.flat], self._limits.max_gradient_value)
        if self._limits.clips_by_norm:  # now: nodes still compute, nobody waits
            pruned = self.pruned(message.bucket, whole, update)
            places = (self._position[name] for name in pruned)
            norms = zip(places, gradient_norms(pruned.values()), strict=True)
            self._norms.setdefault(message.step, {}).update(norms)
        return whole

    def _values(self, bucket: int, whole: PartialSum, update: int) -> Mapping[str, torch.Tensor]:
        """Return gradients with zeros, or nothing, where weights are masked."""
        return self._masks.prune_gradients(self.gradients(bucket, whole, update), update)

    def _arrived(
        self, message: GradientReady, release: Callable[[], None], update: int
    ) -> PartialSum:
        """Return the sum of a subtree, which has the values that the masks leave."""
        payload = message.payload
        bucket = self._streams.gradients(self._buckets[message.bucket], update)
        num_added = message.subtree.size(self._program.num_micro_batches)
        dtype = DTYPES[self._program.dtype_of_sum(num_added)]
        num_bytes = bucket.num_elements * dtype.itemsize
        if payload.num_bytes != num_bytes:
            raise ApplianceCorruptionError(
                f"a gradient must have {num_bytes} bytes; got {payload.num_bytes}",
                code="gradient-size",
                where=f"bucket {bucket.index} of step {message.step}",
                value=payload.num_bytes,
                rule="gradients of sparse weights are the values of their non-zeros",
                remedy="restart from a checkpoint; if it comes back, test the memory of the host",
            )
        return PartialSum([payload.view(dtype)], payload, on_release=release)

    def _partial(self, step: int) -> NormPartial:
        """Return the part of this server in what all have to agree on."""
        is_finite = step not in self._overflowed
        self._overflowed.discard(step)
        norms = self._norms.pop(step, {})
        return NormPartial(step, self._server, tuple(norms.items()), is_finite)


class NormExchange:
    """The exchange by which servers agree on the global gradient norm, as its leader sees it.

    Each server sends its part to the leader, the lowest server that owns a gradient. The leader
    adds the per-tensor norms in master order, as ``torch.nn.utils.clip_grad_norm_`` does, so the
    total never depends on which server owns which parameter. The gradients of a step are finite if
    those of every server are.
    """

    def __init__(self, servers: Sequence[int]) -> None:
        self._servers = tuple(servers)
        self._partials: dict[int, dict[int, NormPartial]] = {}

    @property
    def leader(self) -> str:
        """Name of the server that adds the parts."""
        return server_name(min(self._servers))

    def take(self, partial: NormPartial) -> Iterator[tuple[str, NormTotal]]:
        """Take one server's part; when all are there, yield the total for each server by name."""
        arrived = self._partials.setdefault(partial.step, {})
        arrived[partial.server] = partial
        if len(arrived) < len(self._servers):
            return
        del self._partials[partial.step]
        norms = dict(pair for part in arrived.values() for pair in part.norms)
        total = total_norm([norms[position] for position in sorted(norms)])
        is_finite = all(part.is_finite for part in arrived.values())
        for server in self._servers:
            yield server_name(server), NormTotal(partial.step, total, is_finite)


def all_finite(flat: torch.Tensor) -> bool:
    """Return whether no element is infinite or NaN, which both extremes would show."""
    if not flat.numel():
        return True
    return all(bool(torch.isfinite(extreme)) for extreme in torch.aminmax(flat))


def _add(left: PartialSum, right: PartialSum) -> PartialSum:
    return left.add(right, _memory_like)


def _memory_like(like: PartialSum) -> PartialSum:
    return PartialSum([torch.empty_like(like.flat, dtype=torch.float32)], is_owned=True)
