"""What a weight server may stream: it runs ahead of the systems within three rules.

Weights stream in schedule order; at most ``window`` buckets are unreleased; a weight of step t + 1
waits for its update of step t. So the first layers of the next step stream while the last updates
of this step are still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from waferstream.core.messages.messages import WeightsReady
from waferstream.core.messages.payload import Slab
from waferstream.core.program.stream_plan import Bucket


class Streamer:
    """The weights that one server streams during one job.

    Args:
        steps: The steps of the job.
        num_rounds: Rounds of a step; each streams all buckets.
        buckets: The buckets of the server, in schedule order.
        window: The most buckets that may be unreleased.
        trained: The parameters that every step changes; none in an evaluation.
    """

    def __init__(
        self,
        steps: range,
        num_rounds: int,
        buckets: Sequence[Bucket],
        window: int,
        trained: Sequence[str],
    ) -> None:
        self._steps = steps
        self._num_rounds = num_rounds
        self._buckets = buckets
        self._window = window
        self._num_sent = 0
        self._unreleased: dict[tuple[int, int, int], Slab] = {}
        self._version = dict.fromkeys(trained, steps.start - 1)

    @property
    def finished(self) -> bool:
        """Whether all weights were sent and released."""
        return self._all_sent and not self._unreleased

    @property
    def has_unreleased(self) -> bool:
        """Whether a reader still holds weights."""
        return bool(self._unreleased)

    def send(self, cast: Callable[[int, int, Bucket], Slab]) -> Iterator[WeightsReady]:
        """Yield all weights that may stream now.

        Each is ``cast`` for its step and round when it is due.
        """
        while not self._all_sent and len(self._unreleased) < self._window:
            rounds_done, position = divmod(self._num_sent, len(self._buckets))
            steps_done, round_index = divmod(rounds_done, self._num_rounds)
            step, bucket = self._steps[steps_done], self._buckets[position]
            if not self._is_current(bucket, step):
                return
            slab = cast(step, round_index, bucket)
            self._unreleased[step, round_index, bucket.index] = slab
            self._num_sent += 1
            yield WeightsReady(step, round_index, bucket.index, slab)

    def release(self, step: int, round_index: int, bucket: int) -> None:
        """Free a bucket that all systems have read."""
        self._unreleased.pop((step, round_index, bucket)).free()

    def note_update(self, names: Sequence[str], step: int) -> None:
        """Note that these parameters have seen their update of a step."""
        self._version.update(dict.fromkeys(names, step))

    @property
    def _all_sent(self) -> bool:
        return self._num_sent == len(self._steps) * self._num_rounds * len(self._buckets)

    def _is_current(self, bucket: Bucket, step: int) -> bool:
        """Return whether all trained weights of a bucket have the update of the step before."""
        return all(self._version.get(name, step - 1) == step - 1 for name in bucket.names)
