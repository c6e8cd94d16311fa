"""The streamer: order, window and versions of the weights that stream."""

from collections.abc import Sequence

from memoryx.job.streamer import Streamer
from tests.support.programs.small_programs import program
from tests.support.roles.arenas import StrictArena, StrictSlab
from waferstream.core.program.stream_plan import Bucket, plan_streams

PROGRAM = program()
BUCKETS = plan_streams(PROGRAM, 1).weights


def streamer(
    window: int = 10, first: int = 1, last: int = 1, trained: Sequence[str] = PROGRAM.trained
) -> Streamer:
    """Return the streamer of one server that owns all weights, in two rounds a step."""
    return Streamer(range(first, last + 1), 2, BUCKETS, window, trained)


def sent_by(made: Streamer) -> list[tuple[int, int, int]]:
    """Return step, round and bucket of the weights that may stream now."""
    arena = StrictArena()
    messages = made.send(lambda _step, _round, bucket: arena.allocate(bucket.num_bytes))
    return [(ready.step, ready.round, ready.bucket) for ready in messages]


def test_streamer_sends_in_schedule_order_and_once() -> None:
    """Bucket after bucket, round after round; when all are released, the job is done."""
    made = streamer()
    sent = sent_by(made)
    assert sent == [(1, r, s) for r in range(2) for s in range(len(BUCKETS))]
    assert not made.finished
    for place in sent:
        made.release(*place)
    assert sent_by(made) == []
    assert made.finished


def test_streamer_waits_while_the_window_is_full() -> None:
    """Each release lets one more bucket go."""
    made = streamer(window=2)
    assert sent_by(made) == [(1, 0, 0), (1, 0, 1)]
    assert sent_by(made) == []
    made.release(1, 0, 1)
    assert sent_by(made) == [(1, 0, 2)]


def test_streamer_waits_for_updates_of_all_parameters() -> None:
    """The first bucket of step 6 holds two parameters; the update of one is not enough."""
    made = streamer(window=100, first=5, last=6)
    assert {step for step, _, _ in sent_by(made)} == {5}
    made.note_update(["first.weight"], 5)
    assert sent_by(made) == []
    made.note_update(["first.bias"], 5)
    assert sent_by(made) == [(6, 0, 0)]


def test_streamer_evaluation_waits_for_no_update() -> None:
    """All its steps may stream at once."""
    made = streamer(window=100, last=3, trained=())
    assert {step for step, _, _ in sent_by(made)} == {1, 2, 3}


def test_send_casts_each_bucket_when_it_is_due() -> None:
    """A bucket that the consumer has not asked for is not cast yet."""
    made, arena = streamer(), StrictArena()
    cast: list[int] = []

    def note(_step: int, _round: int, bucket: Bucket) -> StrictSlab:
        cast.append(bucket.index)
        return arena.allocate(bucket.num_bytes)

    messages = made.send(note)
    next(messages)
    assert cast == [0]
    next(messages)
    assert cast == [0, 1]


def test_streamer_without_buckets_is_finished() -> None:
    """A server that owns no parameter has nothing to do."""
    assert Streamer(range(1, 3), 2, (), 1, ()).finished
