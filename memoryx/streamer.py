"""From masters to streamed weights: a server runs ahead of the systems as far as three rules allow.

Weights stream in schedule order; at most ``window`` buckets are unreleased; a weight of step t + 1
waits for its update of step t. So the first layers of the next step go out while the last updates
of this one are still to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memoryx.store import WeightStore
from wsc.compiler.precision import DTYPES
from wsc.core.installation import Installation
from wsc.core.messages import WeightsReady
from wsc.core.packing import unpack
from wsc.core.payload import Slab
from wsc.core.program import Bucket
from wsc.core.role import Job, RoleContext


class Streamer:
    """The weights that one server streams during one job."""

    def __init__(
        self,
        store: WeightStore,
        installed: Installation,
        buckets: Sequence[Bucket],
        window: int,
        job: Job,
        context: RoleContext,
    ) -> None:
        self._store = store
        self._program = installed.program
        self._window = window
        self._context = context
        self._schedule = _schedule(job, installed.rounds.count, buckets)
        self._next = next(self._schedule, None)
        self._unreleased: dict[tuple[int, int, int], Slab] = {}
        # An evaluation updates nothing, so that its weights have nothing to wait for.
        trained = installed.program.trained if job.mode == "train" else ()
        self._version = dict.fromkeys(trained, job.first_step - 1)

    @property
    def finished(self) -> bool:
        """Whether all weights were sent and released."""
        return self._next is None and not self._unreleased

    def send(self) -> Iterator[WeightsReady]:
        """All weights that may go out now; each is cast when it is asked for."""
        while self._next is not None and len(self._unreleased) < self._window:
            step, round_index, bucket = self._next
            if not self._is_current(bucket, step):
                return
            slab = self._cast(bucket)
            self._unreleased[step, round_index, bucket.index] = slab
            self._next = next(self._schedule, None)
            yield WeightsReady(step, round_index, bucket.index, slab)

    def release(self, step: int, round_index: int, bucket: int) -> None:
        """A bucket has been read by all."""
        self._unreleased.pop((step, round_index, bucket)).free()

    def note_update(self, names: Sequence[str], step: int) -> None:
        """These parameters have seen their update of a step."""
        self._version.update(dict.fromkeys(names, step))

    def _is_current(self, bucket: Bucket, step: int) -> bool:
        """Whether every trained weight of the bucket has seen the update of the step before."""
        return all(self._version.get(name, step - 1) == step - 1 for name in bucket.names)

    def _cast(self, bucket: Bucket) -> Slab:
        """The bucket's masters in stream dtype: the cast is the copy that travels."""
        slab = self._context.arena.allocate(bucket.num_bytes)
        views = unpack(slab.view(DTYPES[self._program.stream_dtype]), bucket.specs)
        with self._context.cores.lease():
            for name, view in zip(bucket.names, views, strict=True):
                view.copy_(self._store.masters[name])
        return slab


def _schedule(
    job: Job, num_rounds: int, buckets: Sequence[Bucket]
) -> Iterator[tuple[int, int, Bucket]]:
    """Step, round and bucket of everything to send, in order."""
    for step in job.steps:
        for round_index in range(num_rounds):
            for bucket in buckets:
                yield step, round_index, bucket
