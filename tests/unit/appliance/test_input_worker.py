"""An input worker driven by hand: which rows go to which node, and how far ahead."""

from functools import partial

import pytest
import torch

from appliance.cores import UnlimitedCores
from appliance.input_worker import WorkerSpec
from tests.support.arenas import StrictArena
from tests.support.errors import raises
from tests.support.local_machine import Regression, compile_model, random_batches
from wsc.core.errors import DataError
from wsc.core.installation import InputFeed, Installation
from wsc.core.messages import BatchReady, BatchReleased, Envelope
from wsc.core.program import plan_streams
from wsc.core.role import Job, RoleContext
from wsc.core.schedule import Rounds

ROWS, NUM_MICRO_BATCHES = 10, 5
BATCHES = random_batches(3, ROWS)


@pytest.fixture(scope="module")
def program():
    return compile_model(Regression(), BATCHES[0], NUM_MICRO_BATCHES, trains=False).program


@pytest.fixture
def driver(program):
    return partial(Driver, program)


class Driver:
    """A worker, and what it has sent."""

    def __init__(self, program, nodes=(0, 1), num_nodes=2, lanes=1, batches=BATCHES, leaves=(0, 1)):
        self.arena = StrictArena()
        self.worker = WorkerSpec(0, nodes).build(RoleContext(self.arena, UnlimitedCores()))
        self.worker.install(
            Installation(
                program,
                (),
                plan_streams(program, 1),
                Rounds(NUM_MICRO_BATCHES, num_nodes, lanes),
                InputFeed(lambda: batches, leaves),
                None,
            )
        )

    def begin(self, first=1, last=2):
        self.job = self.worker.begin(Job("eval", first, last))
        self.waiting = list(self.job.start())
        return [self.brief(envelope) for envelope in self.waiting]

    def release(self):
        """Release the oldest payload; returns what is sent instead."""
        oldest = self.waiting.pop(0)
        message = BatchReleased(oldest.message.step, oldest.message.micro_batch)
        answers = list(self.job.handle(Envelope(oldest.target, "wrk-0", message)))
        self.waiting += answers
        return [self.brief(envelope) for envelope in answers]

    def brief(self, envelope):
        assert isinstance(envelope.message, BatchReady)
        return envelope.target, envelope.message.step, envelope.message.micro_batch


def test_every_node_gets_its_own_micro_batches_in_order(driver):
    """The first two each; then one for every one that comes back, to the same node."""
    made = driver()
    sent = made.begin()
    assert sorted(sent) == [
        ("csx-0", 1, 0),
        ("csx-0", 1, 2),
        ("csx-1", 1, 1),
        ("csx-1", 1, 3),
    ]
    while made.waiting:
        sent += made.release()
    per_node = {
        node: [brief[1:] for brief in sent if brief[0] == node] for node in ("csx-0", "csx-1")
    }
    assert per_node == {
        "csx-0": [(step, index) for step in (1, 2) for index in (0, 2, 4)],
        "csx-1": [(step, index) for step in (1, 2) for index in (1, 3)],
    }
    assert made.job.finished
    assert made.arena.live == set()


def test_it_is_not_ahead_by_more_than_the_prefetch(driver):
    """Two micro-batches per lane wait at each node; credits are the backpressure."""
    for lanes, most in ((1, 4), (2, 5)):
        made = driver(lanes=lanes)
        made.begin(1, 1)
        assert len(made.arena.live) == most
        while made.waiting:
            made.release()
            assert len(made.arena.live) <= 4 * lanes


def test_a_payload_holds_the_rows_of_its_micro_batch(driver):
    """One input after the other, as raw bytes, of the batch that belongs to the step."""
    made = driver()
    made.begin(first=2, last=2)
    for envelope in made.waiting:
        index = envelope.message.micro_batch
        expected = [t[2 * index : 2 * index + 2].reshape(-1) for t in BATCHES[1].values()]
        assert torch.equal(envelope.message.payload.view(torch.float32), torch.cat(expected))


def test_only_the_program_s_inputs_travel(driver):
    """``leaves`` says which of the batch's tensors those are, and in which order."""
    made = driver(leaves=(1, 0))
    made.begin(1, 1)
    first = made.waiting[0].message
    rows = [BATCHES[0][name][:2].reshape(-1) for name in ("y", "x")]
    assert torch.equal(first.payload.view(torch.float32), torch.cat(rows))


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (lambda t: t[:, :3], "float32 (2, 3) in step 2"),
        (lambda t: t.double(), "float64 (2, 4) in step 2"),
    ],
    ids=["shape", "dtype"],
)
def test_a_batch_of_another_shape_is_refused(driver, change, value):
    """The step was captured for one shape; the message names step, input and remedy."""
    odd = {name: change(tensor) for name, tensor in BATCHES[1].items()}
    made = driver(batches=[BATCHES[0], odd])
    with raises(DataError, "input-changed") as caught:
        made.begin(first=2, last=2)
    assert "'input_0'" in caught.value.what
    assert caught.value.value == value
    assert caught.value.remedy


def test_a_short_batch_is_refused(driver):
    """Every global batch has as many rows as the first."""
    short = {name: tensor[:-1] for name, tensor in BATCHES[0].items()}
    with raises(DataError, "batch-rows-mismatch"):
        driver(batches=[short]).begin()


def test_rows_that_are_views_are_copied_whole(driver):
    """A transposed or strided tensor of the user arrives as its values, not as its memory."""
    strided = {n: t.t().contiguous().t() for n, t in BATCHES[0].items()}
    made = driver(batches=[strided])
    made.begin(1, 1)
    expected = [t[:2].reshape(-1) for t in BATCHES[0].values()]
    assert torch.equal(made.waiting[0].message.payload.view(torch.float32), torch.cat(expected))


def test_a_worker_without_nodes_has_nothing_to_do(driver):
    """It is finished as soon as it began."""
    made = driver(nodes=())
    assert made.begin() == []
    assert made.job.finished
