"""The input worker: rows and order of micro-batches, prefetch, and malformed batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch

from appliance.elaboration.elaborate import ClusterSize
from appliance.input.input_worker import LabelWeights, WholeValues, WorkerSpec
from appliance.placement.cores import UnlimitedCores
from tests.support.errors import raises
from tests.support.roles.arenas import StrictArena
from tests.support.roles.envelopes import payload_of
from tests.support.roles.local_machine import (
    Regression,
    compile_model,
    compiled_regression,
    installation,
    random_batches,
)
from waferstream.core.errors import DataError
from waferstream.core.messages.messages import BatchReady, BatchReleased, Envelope
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.label_means import LabelMean
from waferstream.core.program.program import Program, ProgramKind, TensorSpec
from waferstream.core.program.schedule import Rounds
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.core.roles.role import Job, RoleContext

ROWS, NUM_MICRO_BATCHES = 10, 5
BATCHES = random_batches(3, ROWS)

Brief = tuple[str, int, int]
"""Target, step and micro-batch of a message."""

COUNT = KernelSource("def forward(self, x):\n    return [x.sum()]\n", {}, {})
STEPS = {1: (1.0, 3.0), 2: (0.0, 5.0)}

TEXT = """
def forward(self, x, y):
    return (torch.ops.aten.repeat_interleave.self_int(x, 2), torch.ops.aten.sum.default(y))
"""
BATCH = [torch.arange(4.0), torch.ones(4)]


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_model(Regression(), BATCHES[0], NUM_MICRO_BATCHES, trains=False).program


class Driver:
    """Runs a worker without a cluster, and records what it sends."""

    def __init__(
        self,
        program: Program,
        nodes: tuple[int, ...] = (0, 1),
        num_nodes: int = 2,
        per_node: int = 1,
        batches: Sequence[dict[str, torch.Tensor]] = BATCHES,
        leaves: tuple[int, ...] = (0, 1),
    ) -> None:
        self.arena = StrictArena()
        self.worker = WorkerSpec(0, nodes).build(RoleContext(self.arena, UnlimitedCores()))
        installation = Installation(
            program,
            (),
            plan_streams(program, 1),
            Rounds(NUM_MICRO_BATCHES, num_nodes, per_node),
            InputFeed(lambda: batches, leaves),
            None,
        )
        self.worker.do(Install(installation))

    def begin(self, first: int = 1, last: int = 2) -> list[Brief]:
        self.job = self.worker.begin(Job(ProgramKind.EVAL, first, last))
        self.waiting = list(self.job.start())
        return [self.brief(envelope) for envelope in self.waiting]

    def release(self) -> list[Brief]:
        """Release the oldest payload; return what the worker sends next."""
        oldest = self.waiting.pop(0)
        _, step, micro_batch = self.brief(oldest)
        message = BatchReleased(step, micro_batch)
        answers = list(self.job.handle(Envelope(oldest.target, "wrk-0", message)))
        self.waiting += answers
        return [self.brief(envelope) for envelope in answers]

    def brief(self, envelope: Envelope) -> Brief:
        assert isinstance(envelope.message, BatchReady)
        return envelope.target, envelope.message.step, envelope.message.micro_batch


MakeDriver = Callable[..., Driver]


@pytest.fixture
def driver(program: Program) -> MakeDriver:
    return partial(Driver, program)


def test_every_node_gets_its_micro_batches_in_order(driver: MakeDriver) -> None:
    """Each node first gets two; then one more for every one that it releases."""
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


def test_worker_prefetches_two_rounds(driver: MakeDriver) -> None:
    """The micro-batches of two rounds wait at each node; credits are the backpressure."""
    for per_node, most in ((1, 4), (2, 5)):
        made = driver(per_node=per_node)
        made.begin(1, 1)
        assert len(made.arena.live) == most
        while made.waiting:
            made.release()
            assert len(made.arena.live) <= 4 * per_node


def test_payload_holds_the_rows_of_its_micro_batch(driver: MakeDriver) -> None:
    """The payload is one input after the other, as raw bytes, of the step's batch."""
    made = driver()
    made.begin(first=2, last=2)
    for envelope in made.waiting:
        _, _, index = made.brief(envelope)
        expected = [t[2 * index : 2 * index + 2].reshape(-1) for t in BATCHES[1].values()]
        assert torch.equal(payload_of(envelope).view(torch.float32), torch.cat(expected))


def test_loader_is_read_once_though_nodes_are_a_step_apart(driver: MakeDriver) -> None:
    """One node reaches step 2 while another still needs step 1."""

    class Counted(list[dict[str, torch.Tensor]]):
        started = 0

        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            self.started += 1
            return super().__iter__()

    loader = Counted(BATCHES)
    made = driver(batches=loader)
    made.begin(1, 3)
    made.waiting.sort(key=lambda envelope: envelope.target, reverse=True)
    assert [brief[1] for _ in range(3) for brief in made.release()] == [2, 2, 1]
    while made.waiting:
        made.release()
    assert loader.started == 1


def test_only_inputs_of_the_program_are_sent(driver: MakeDriver) -> None:
    """``leaves`` selects and orders the tensors of a batch."""
    made = driver(leaves=(1, 0))
    made.begin(1, 1)
    first = made.waiting[0]
    rows = [BATCHES[0][name][:2].reshape(-1) for name in ("y", "x")]
    assert torch.equal(payload_of(first).view(torch.float32), torch.cat(rows))


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (lambda t: t[:, :3], "float32 (2, 3) in step 2"),
        (lambda t: t.double(), "float64 (2, 4) in step 2"),
    ],
    ids=["shape", "dtype"],
)
def test_batch_of_another_shape_is_refused(
    driver: MakeDriver, change: Callable[[torch.Tensor], torch.Tensor], value: str
) -> None:
    """The program has one shape; the error names step, input and remedy."""
    odd = {name: change(tensor) for name, tensor in BATCHES[1].items()}
    made = driver(batches=[BATCHES[0], odd])
    with raises(DataError, "input-changed") as caught:
        made.begin(first=2, last=2)
    assert "'input_0'" in caught.value.what
    assert caught.value.value == value
    assert caught.value.remedy


def test_short_batch_is_refused(driver: MakeDriver) -> None:
    """Every global batch must have as many rows as the program."""
    short = {name: tensor[:-1] for name, tensor in BATCHES[0].items()}
    with raises(DataError, "batch-rows-mismatch"):
        driver(batches=[short]).begin()


def test_strided_rows_are_copied_by_value(driver: MakeDriver) -> None:
    """A transposed or strided tensor is copied by value."""
    strided = {n: t.t().contiguous().t() for n, t in BATCHES[0].items()}
    made = driver(batches=[strided])
    made.begin(1, 1)
    expected = [t[:2].reshape(-1) for t in BATCHES[0].values()]
    assert torch.equal(payload_of(made.waiting[0]).view(torch.float32), torch.cat(expected))


def test_worker_without_nodes_sends_nothing(driver: MakeDriver) -> None:
    """Its job is finished at the start."""
    made = driver(nodes=())
    assert made.begin() == []
    assert made.job.finished


class Asked:
    """Inputs of the micro-batches of one step; records which were read."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.read: list[int] = []

    def __call__(self, micro_batch: int) -> Sequence[torch.Tensor]:
        self.read.append(micro_batch)
        return [torch.tensor(STEPS[self.step][micro_batch])]


def weights_of_two(*means: LabelMean) -> LabelWeights:
    compiled = compiled_regression(4, 2, trains=False)
    installed = installation(compiled, lambda: None, None, ClusterSize(1))
    program = replace(installed.program, label_means=means)
    return LabelWeights(replace(installed, program=program, label_counts=COUNT if means else None))


def test_label_weights_count_a_step_once() -> None:
    """All micro-batches are read at the first call, none afterwards until the step is dropped."""
    weights = weights_of_two(LabelMean(0, results=(0,), is_loss=False))
    one, two = Asked(1), Asked(2)
    assert weights.of(1, 1, one) == (1.5,)
    assert weights.of(2, 0, two) == (0.0,)
    assert weights.of(1, 0, one) == (0.5,)
    assert one.read == two.read == [0, 1]
    weights.drop_before(2)
    weights.of(1, 0, one)
    weights.of(2, 1, two)
    assert one.read == [0, 1, 0, 1]
    assert two.read == [0, 1]


def test_label_weights_of_a_program_without_label_means_read_nothing() -> None:
    """There is nothing to count."""
    asked = Asked(1)
    assert weights_of_two().of(1, 0, asked) == ()
    assert asked.read == []


def values_of_two() -> WholeValues:
    """Return those of two micro-batches of two samples: two rows for each, and a sum."""
    compiled = compiled_regression(4, 2, trains=False)
    installed = installation(compiled, lambda: None, None, ClusterSize(1))
    inputs = (*installed.program.inputs, TensorSpec("whole_0", (4,), "float32"))
    whole = (TensorSpec("whole_1", (), "float32"),)
    program = replace(installed.program, inputs=inputs, num_cut=1, whole=whole)
    return WholeValues(replace(installed, program=program, whole=KernelSource(TEXT, {}, {})))


def test_values_with_rows_are_cut_and_others_are_given_whole() -> None:
    """The first two samples have four rows."""
    rows, total = values_of_two().of(1, 1, BATCH)
    assert torch.equal(rows, torch.tensor([2.0, 2.0, 3.0, 3.0]))
    assert total == 4.0


def test_values_of_a_step_are_computed_once_until_it_is_dropped() -> None:
    """A step reads the batch that it had when it was first asked for."""
    values = values_of_two()
    values.of(1, 0, BATCH)
    other = [BATCH[0], 2 * BATCH[1]]
    assert values.of(1, 1, other)[1] == 4.0
    values.drop_before(2)
    assert values.of(1, 1, other)[1] == 8.0


def test_program_without_values_of_the_batch_gets_none() -> None:
    """Nothing is computed."""
    compiled = compiled_regression(4, 2, trains=False)
    installed = installation(compiled, lambda: None, None, ClusterSize(1))
    assert WholeValues(installed).of(1, 0, BATCH) == []
