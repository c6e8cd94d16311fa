"""Work of weight servers and replicas on buckets: cast them, and measure what is done with them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from memoryx.store.store import WeightStore
from waferstream.core.messages.payload import Slab, unpack
from waferstream.core.program.program import Program
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.roles.activities import Interval, place_of
from waferstream.core.roles.role import Cores
from waferstream.core.sparsity.packed_weights import PackedWeights
from waferstream.numerics.precision import CARRIED, write_stream


class BucketWork:
    """Measures what is done with the buckets of a program.

    Args:
        program: The program.
        cores: The host's cores; one is held during every activity.
        intervals: Where the activities go.
    """

    def __init__(self, program: Program, cores: Cores, intervals: list[Interval]) -> None:
        self._program = program
        self._cores = cores
        self._intervals = intervals

    @contextmanager
    def doing(
        self,
        activity: str,
        step: int,
        bucket: Bucket,
        round_index: int = -1,
        num_bytes: int | None = None,
    ) -> Iterator[None]:
        """Hold a core during an activity, and note when that was.

        Args:
            activity: The activity.
            step: Its step.
            bucket: The bucket that is worked on.
            round_index: The round of the step, if it belongs to one.
            num_bytes: The bytes that travel, if they are not those of the whole bucket.
        """
        with self._cores.lease():
            start_ns = time.perf_counter_ns()
            yield
            stop_ns = time.perf_counter_ns()
        place = place_of(self._program, bucket, step, round_index)
        travelling = bucket.num_bytes if num_bytes is None else num_bytes
        detail = f"bucket {bucket.index}"
        self._intervals.append(Interval(activity, start_ns, stop_ns, place, detail, travelling))


def cast(
    store: WeightStore,
    bucket: Bucket,
    packed: PackedWeights | None,
    slab: Slab,
    dtype: str,
) -> None:
    """Write masters in stream dtype to a slab: the cast is the only copy.

    Args:
        store: The masters.
        bucket: The weights to write.
        packed: How they are packed, if some are sparse.
        slab: Where they go.
        dtype: Type in which weights stream.
    """
    if packed is None:
        views = unpack(slab.view(CARRIED[dtype]), bucket.specs)
        for name, view in zip(bucket.names, views, strict=True):
            write_stream(store.weights[name], view, dtype)
        return
    packed.write(slab)
    for spec, index, values in packed.parts(slab, CARRIED[dtype]):
        write_stream(store.present(spec.name, index), values, dtype)


def first_use(gradients: Bucket, streamed: Sequence[Bucket]) -> int:
    """Return the position in the stream at which a step first needs an updated weight."""
    return next(
        (
            place
            for place, bucket in enumerate(streamed)
            if not set(gradients.changed).isdisjoint(bucket.names)
        ),
        len(streamed),
    )


def followers(buckets: Sequence[Bucket]) -> dict[int, tuple[str, ...]]:
    """Return the parameters of the bucket that follows on each one in a round, by its index."""
    following = (*buckets[1:], *buckets[:1])
    pairs = zip(buckets, following, strict=True)
    return {bucket.index: after.names for bucket, after in pairs}
