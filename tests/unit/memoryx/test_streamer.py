"""What streams when, without the role around it."""

from dataclasses import replace

import pytest
import torch

from appliance.cores import UnlimitedCores
from memoryx.store import WeightStore
from memoryx.streamer import Streamer
from tests.support.arenas import StrictArena
from tests.support.small_programs import PARAMETERS, program
from wsc.compiler.precision import DTYPES
from wsc.core.installation import Installation
from wsc.core.program import plan_streams
from wsc.core.role import Job, RoleContext
from wsc.core.rounds import Rounds

NUM_SHARDS = len(plan_streams(program(), 1).weights)


def streamer(window=10, mode="train", steps=(1, 1), stream_dtype="float32"):
    """A streamer of one server that owns all weights, in two rounds a step; and its store."""
    tiny = replace(program(stream_dtype), mode=mode)
    plan = plan_streams(tiny, 1)
    installed = Installation(tiny, (), plan, Rounds(5, 3), None, None)
    store = WeightStore(PARAMETERS)
    store.fill({spec.name: torch.randn(spec.shape) for spec in PARAMETERS})
    context = RoleContext(StrictArena(), UnlimitedCores())
    return Streamer(store, installed, plan.weights, window, Job(mode, *steps), context), store


def places(messages):
    return [(ready.step, ready.round, ready.bucket) for ready in messages]


def test_weights_go_out_in_schedule_order_and_once():
    """Bucket after bucket, round after round; when all are released, the job is done."""
    made, _ = streamer()
    sent = places(made.send())
    assert sent == [(1, r, s) for r in range(2) for s in range(NUM_SHARDS)]
    assert not made.finished
    for place in sent:
        made.release(*place)
    assert places(made.send()) == []
    assert made.finished


def test_a_full_window_stops_the_stream_until_a_bucket_is_released():
    """Each release lets one more bucket go."""
    made, _ = streamer(window=2)
    assert places(made.send()) == [(1, 0, 0), (1, 0, 1)]
    assert places(made.send()) == []
    made.release(1, 0, 1)
    assert places(made.send()) == [(1, 0, 2)]


def test_a_bucket_waits_until_all_its_parameters_are_updated():
    """The first bucket of step 6 holds two parameters; the update of one is not enough."""
    made, _ = streamer(window=100, steps=(5, 6))
    assert {step for step, _, _ in places(made.send())} == {5}
    made.note_update(["first.weight"], 5)
    assert places(made.send()) == []
    made.note_update(["first.bias"], 5)
    assert places(made.send()) == [(6, 0, 0)]


def test_an_evaluation_waits_for_no_update():
    """All its steps may stream at once."""
    made, _ = streamer(window=100, mode="eval", steps=(1, 3))
    assert {step for step, _, _ in places(made.send())} == {1, 2, 3}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_bucket_is_the_masters_cast(dtype):
    """In stream dtype, one parameter after the other; the cast is torch's."""
    made, store = streamer(stream_dtype=dtype)
    ready = next(made.send())
    flat = torch.cat([store.masters[name].reshape(-1) for name in ("first.weight", "first.bias")])
    assert torch.equal(ready.payload.view(DTYPES[dtype]), flat.to(DTYPES[dtype]))
