"""From gradient subtrees to updated masters: collect, agree on the norm, clip, apply the rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from memoryx.optim.clip import clip_coefficient, clip_value_, gradient_norms
from memoryx.store import WeightStore
from wsc.core.messages import GradientReady, NormPartial
from wsc.core.optimizer import OptimizerSpec
from wsc.core.packing import unpack
from wsc.core.partial_sum import PartialSum
from wsc.core.program import Bucket, Program
from wsc.core.reduce_order import Merger
from wsc.core.role import Cores, Interval


@dataclass
class Updated:
    """What one message led to: parameters now at version ``step``, or a norm to be agreed on."""

    names: tuple[str, ...] = ()
    partial: NormPartial | None = None


class Updater:
    """The update of one server's parameters during one job."""

    def __init__(
        self,
        server: int,
        store: WeightStore,
        program: Program,
        buckets: tuple[Bucket, ...],
        optimizer: OptimizerSpec,
        cores: Cores,
        intervals: list[Interval],
    ) -> None:
        self._server = server
        self._store = store
        self._program = program
        self._buckets = {bucket.index: bucket for bucket in buckets}
        self._optimizer = optimizer
        self._cores = cores
        self._intervals = intervals
        self._position = {name: place for place, name in enumerate(program.trained)}
        self._mergers: dict[tuple[int, int], Merger[PartialSum]] = {}  # by step and bucket
        self._waiting: dict[int, dict[int, PartialSum]] = {}  # step -> bucket -> complete sum

    def take(self, message: GradientReady, release: Callable[[], None]) -> Updated:
        """Take one subtree of a gradient bucket; ``release`` is called once it has been read."""
        step, bucket = message.step, message.bucket
        with self._cores.lease():
            whole = self._add(message, release)
        if whole is None:
            return Updated()
        if self._optimizer.max_gradient_norm is None:
            return Updated(self._apply(step, {bucket: whole}))
        return self._wait_for_norm(step, bucket, whole)

    def clip_and_apply(self, step: int, norm: float) -> Updated:
        """Apply a step that waited for the global gradient norm."""
        assert self._optimizer.max_gradient_norm is not None
        sums = self._waiting.pop(step)
        coefficient = clip_coefficient(norm, self._optimizer.max_gradient_norm)
        with self._cores.lease():
            for whole in sums.values():
                whole.flat.mul_(coefficient)
        return Updated(self._apply(step, sums))

    def _add(self, message: GradientReady, release: Callable[[], None]) -> PartialSum | None:
        """Add a subtree; return the sum of the whole batch, scaled and clamped, when complete."""
        key = (message.step, message.bucket)
        merger = self._mergers.setdefault(key, Merger(self._program.num_micro_batches, _add))
        payload = message.payload
        arrived = PartialSum([payload.view(torch.float32)], payload, on_release=release)
        held = merger.offer(message.subtree, arrived)
        if not merger.is_whole:
            # A sum that must wait is copied: its sender gets the memory back at once. Only the
            # one that completes the batch is used in place.
            held.own(_memory_like)
            return None
        del self._mergers[key]
        ((_, whole),) = merger.take()
        if self._optimizer.loss_scale != 1.0:
            whole.flat.div_(self._optimizer.loss_scale)
        if self._optimizer.max_gradient_value is not None:
            clip_value_([whole.flat], self._optimizer.max_gradient_value)
        return whole

    def _wait_for_norm(self, step: int, bucket: int, whole: PartialSum) -> Updated:
        waiting = self._waiting.setdefault(step, {})
        waiting[bucket] = whole
        if len(waiting) < len(self._buckets):
            return Updated()
        gradients = self._gradients(waiting)
        with self._cores.lease():
            norms = gradient_norms(list(gradients.values()))
        places = (self._position[name] for name in gradients)
        return Updated(
            partial=NormPartial(step, self._server, tuple(zip(places, norms, strict=True)))
        )

    def _apply(self, step: int, sums: Mapping[int, PartialSum]) -> tuple[str, ...]:
        gradients = self._gradients(sums)
        with self._cores.lease():
            start_ns = time.perf_counter_ns()
            self._store.update(gradients, step)
            stop_ns = time.perf_counter_ns()
        self._intervals.append(
            Interval("update", start_ns, stop_ns, step, f"{len(gradients)} tensors")
        )
        for whole in sums.values():
            whole.release()
        return tuple(gradients)

    def _gradients(self, sums: Mapping[int, PartialSum]) -> dict[str, torch.Tensor]:
        """Gradient of each parameter, as views of the sums."""
        gradients: dict[str, torch.Tensor] = {}
        for index, whole in sums.items():
            bucket = self._buckets[index]
            gradients.update(zip(bucket.names, unpack(whole.flat, bucket.specs), strict=True))
        return gradients


def _add(left: PartialSum, right: PartialSum) -> PartialSum:
    return left.add(right, _memory_like)


def _memory_like(like: PartialSum) -> PartialSum:
    return PartialSum([torch.empty_like(like.flat)], is_owned=True)
