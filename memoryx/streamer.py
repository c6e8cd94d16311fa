"""From masters to streamed weights: a server runs ahead of the systems as far as three rules allow.

Weights stream in schedule order; at most ``window`` shards are unreleased; a weight of step t + 1
waits for its update of step t. So the first layers of the next step go out while the last updates
of this one are still to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memoryx.store import WeightStore
from wsc.compiler.installation import Installation
from wsc.compiler.precision import DTYPES
from wsc.core.messages import WeightsReady
from wsc.core.packing import shard_specs, unpack
from wsc.core.payload import Slab
from wsc.core.program import Shard
from wsc.core.room import Job, RoomContext


class Streamer:
    """The weights that one server streams during one job."""

    def __init__(
        self,
        store: WeightStore,
        installed: Installation,
        shards: Sequence[Shard],
        window: int,
        job: Job,
        context: RoomContext,
    ) -> None:
        self._store = store
        self._program = installed.program
        self._window = window
        self._context = context
        self._schedule = _schedule(job, installed.rounds.count, shards)
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
            step, round_index, shard = self._next
            if not self._is_current(shard, step):
                return
            slab = self._cast(shard)
            self._unreleased[step, round_index, shard.index] = slab
            self._next = next(self._schedule, None)
            yield WeightsReady(step, round_index, shard.index, slab)

    def release(self, step: int, round_index: int, shard: int) -> None:
        """A shard has been read by all."""
        self._unreleased.pop((step, round_index, shard)).free()

    def note_update(self, names: Sequence[str], step: int) -> None:
        """These parameters have seen their update of a step."""
        self._version.update(dict.fromkeys(names, step))

    def _is_current(self, shard: Shard, step: int) -> bool:
        """Whether every trained weight of the shard has seen the update of the step before."""
        return all(self._version.get(name, step - 1) == step - 1 for name in shard.names)

    def _cast(self, shard: Shard) -> Slab:
        """The shard's masters in stream dtype: the cast is the copy that travels."""
        slab = self._context.arena.allocate(shard.num_bytes)
        dtype = self._program.stream_dtype
        specs = shard_specs(self._program, shard, dtype)
        views = unpack(slab.view(DTYPES[dtype]), specs)
        with self._context.cores.lease():
            for name, view in zip(shard.names, views, strict=True):
                view.copy_(self._store.masters[name])
        return slab


def _schedule(
    job: Job, num_rounds: int, shards: Sequence[Shard]
) -> Iterator[tuple[int, int, Shard]]:
    """Step, round and shard of everything to send, in order."""
    for step in job.steps:
        for round_index in range(num_rounds):
            for shard in shards:
                yield step, round_index, shard
