"""A weight server driven by hand: what it streams, when it waits, which updates it applies."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.programs.small_programs import PARAMETERS
from tests.support.roles.server_driver import NUM_MICRO_BATCHES, TRAINED, ServerDriver
from tests.support.roles.sorting_office import ORDERS
from waferstream.core.messages.messages import GradientReady, NormTotal, WeightsReady
from waferstream.core.messages.reduce_order import Subtree, root
from waferstream.core.optimizer import LossScaleRule
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.schedule import collected_by
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.roles.commands import Install, ReadMasters
from waferstream.core.roles.role import Job
from waferstream.numerics.precision import DTYPES


def test_server_streams_in_schedule_order() -> None:
    """Bucket after bucket, round after round, to the root of the tree."""
    driver = ServerDriver(steps=1)
    driver.release_all()
    ready = driver.sent_of(WeightsReady)
    buckets, rounds = len(driver.installed.plan.weights), driver.installed.rounds.count
    assert [(m.step, m.round, m.bucket) for m in ready] == [
        (1, r, s) for r in range(rounds) for s in range(buckets)
    ]
    assert {e.target for e in driver.sent if isinstance(e.message, WeightsReady)} == {"br-0"}


@given(ORDERS, st.integers(1, 4))
def test_server_keeps_within_its_window(order: random.Random, window: int) -> None:
    """However releases and gradients arrive; and no weight streams before its last update."""
    driver = ServerDriver(window=window, steps=3)
    plan, last_round = driver.installed.plan, driver.installed.rounds.count - 1
    gradients = [(step, bucket) for step in (1, 2, 3) for bucket in plan.gradients]
    used: set[tuple[int, int, int]] = set()
    version: Counter[str] = Counter()

    def is_computed(gradient: tuple[int, Bucket]) -> bool:
        """Nodes have it when they have released all weights up to its segment."""
        step, bucket = gradient
        needed = (w.index for w in plan.weights if w.segment <= bucket.segment)
        return all((step, last_round, index) in used for index in needed)

    while driver.lent or gradients:
        assert len(driver.lent) <= window
        choices: list[WeightsReady | tuple[int, Bucket]] = [
            *driver.lent,
            *filter(is_computed, gradients),
        ]
        choice = order.choice(choices)
        if isinstance(choice, WeightsReady):
            used.add((choice.step, choice.round, choice.bucket))
            answers = driver.release(choice)
        else:
            gradients.remove(choice)
            step, bucket = choice
            version.update(bucket.names)
            answers = driver.gradient(step, bucket.index)
        for ready in (message for message in answers if isinstance(message, WeightsReady)):
            trained = set(plan.weights[ready.bucket].names) & set(TRAINED)
            assert all(version[name] == ready.step - 1 for name in trained)
    assert driver.job.finished
    assert driver.arena.live == driver.mine.live == set()


def test_server_streams_next_step_per_bucket() -> None:
    """The first layers of step 2 go out while gradients of the last ones are still to come."""
    driver = ServerDriver(window=10)
    driver.release_all()
    plan = driver.installed.plan
    assert {m.step for m in driver.sent_of(WeightsReady)} == {1}
    of_first = next(bucket for bucket in plan.gradients if "first.weight" in bucket.names)
    answers = driver.gradient(1, of_first.index)
    assert [m.bucket for m in answers if isinstance(m, WeightsReady)] == [0]
    of_last = next(bucket for bucket in plan.gradients if "last.weight" in bucket.names)
    answers = driver.gradient(1, of_last.index)
    assert [m.bucket for m in answers if isinstance(m, WeightsReady)][:2] == [1, 2]


def test_server_streams_updated_weights() -> None:
    """Step 2 streams master - lr * gradient."""
    driver = ServerDriver(window=1)
    before = driver.lent[0].payload.view(torch.float32).clone()
    driver.release_all()
    for bucket in driver.installed.plan.gradients:
        driver.gradient(1, bucket.index, value=2.0)
    assert driver.lent[0].step == 2
    assert torch.equal(driver.lent[0].payload.view(torch.float32), before - 0.5 * 2.0)


def test_server_update_leaves_streamed_slabs_alone() -> None:
    """What was cast before the update keeps its bits until it is released."""
    driver = ServerDriver(window=10)
    lent = driver.lent[0]
    before = lent.payload.view(torch.float32).clone()
    for bucket in driver.installed.plan.gradients:
        driver.gradient(1, bucket.index)
    assert torch.equal(lent.payload.view(torch.float32), before)


def test_server_evaluation_waits_for_no_update() -> None:
    """All steps stream as fast as they are released, and the masters stay."""
    driver = ServerDriver(steps=1)
    training = driver.installed
    evaluation = replace(
        training,
        program=replace(training.program, kind=ProgramKind.EVAL),
        plan=replace(training.plan, gradients=()),
        optimizer=None,
    )
    driver.release_all()
    for bucket in driver.installed.plan.gradients:
        driver.gradient(1, bucket.index)
    assert driver.job.finished
    before = driver.server.do(ReadMasters(list(driver.server.store.masters)))
    driver.server.do(Install(evaluation))
    driver.begin(Job(ProgramKind.EVAL, 1, 3))
    driver.release_all()
    assert driver.job.finished
    assert max(m.step for m in driver.sent_of(WeightsReady)) == 3
    after = driver.server.do(ReadMasters(list(driver.server.store.masters)))
    assert all((a == b).all() for a, b in zip(after, before, strict=True))


def run_step(
    num_servers: int, gradients: Mapping[str, torch.Tensor], **limits: float
) -> tuple[dict[str, torch.Tensor], dict[int, float]]:
    """Run one step on several servers that exchange norms; return masters and norms."""
    drivers = {
        f"wgt-{i}": ServerDriver(i, num_servers, window=10, steps=1, cores=None, **limits)
        for i in range(num_servers)
    }
    sizes = {spec.name: spec for spec in PARAMETERS}
    for driver in drivers.values():
        masters = driver.server.store.masters
        driver.server.store.fill({name: torch.ones(sizes[name].shape) for name in masters})
        driver.release_all()
    for index, driver in enumerate(drivers.values()):
        for bucket in collected_by(driver.installed.schedule, index):
            slab = driver.mine.allocate(bucket.num_bytes)
            parts = [gradients[parameter].reshape(-1) for parameter in bucket.names]
            slab.view(torch.float32).copy_(torch.cat(parts))
            driver.tell(GradientReady(1, 0, bucket.index, root(NUM_MICRO_BATCHES), slab))
    while mail := [driver.norms.popleft() for driver in drivers.values() if driver.norms]:
        for envelope in mail:
            drivers[envelope.target].tell(envelope.message, envelope.source)
    assert all(driver.job.finished for driver in drivers.values())
    masters = {n: m for d in drivers.values() for n, m in d.server.store.masters.items()}
    norms = {s: n for d in drivers.values() for s, n in d.job.report().norms.items()}
    return masters, norms


@pytest.mark.parametrize("limit", [0.1, 1e6])
@pytest.mark.parametrize("num_servers", [2, 3])
def test_servers_clip_by_one_global_norm(num_servers: int, limit: float) -> None:
    """One norm over all gradients, and torch's clip_grad_norm_ bit for bit."""
    generator = torch.Generator().manual_seed(0)
    parameters = {spec.name: torch.nn.Parameter(torch.ones(spec.shape)) for spec in PARAMETERS}
    gradients = {name: torch.randn(parameters[name].shape, generator=generator) for name in TRAINED}
    found, norms = run_step(num_servers, gradients, max_gradient_norm=limit)
    alone, norm_alone = run_step(1, gradients, max_gradient_norm=limit)
    assert norms == norm_alone
    for name in TRAINED:
        parameters[name].grad = gradients[name].clone()
    total = torch.nn.utils.clip_grad_norm_([parameters[name] for name in TRAINED], limit)
    assert norms == {1: float(total)}
    torch.optim.SGD(parameters.values(), lr=0.5, fused=True).step()
    assert found.keys() == alone.keys() == parameters.keys()
    for name, parameter in parameters.items():
        assert torch.equal(found[name], alone[name])
        assert torch.equal(found[name], parameter.detach())


def test_server_unscales_then_clamps_gradients() -> None:
    """First divided by the scale, then clamped to the limit."""
    gradients = {name: torch.full(shape, 8.0) for name, shape in shapes().items()}
    masters, norms = run_step(1, gradients, loss_scale=4.0, max_gradient_value=1.5)
    assert norms == {}
    assert all((masters[name] == 1 - 0.5 * 1.5).all() for name in TRAINED)
    masters, _ = run_step(1, gradients, loss_scale=16.0, max_gradient_value=1.5)
    assert all((masters[name] == 1 - 0.5 * 0.5).all() for name in TRAINED)


def shapes() -> dict[str, tuple[int, ...]]:
    return {spec.name: spec.shape for spec in PARAMETERS if spec.name in TRAINED}


def test_server_keeps_frozen_parameters() -> None:
    """They stream like all others and are never updated."""
    gradients = {name: torch.ones(shape) for name, shape in shapes().items()}
    masters, _ = run_step(2, gradients)
    assert (masters["last.frozen"] == 1).all()


def test_server_masters_returns_copies() -> None:
    """Changing a copy does not change the weights."""
    server = ServerDriver().server
    (array,) = server.do(ReadMasters(["first.bias"]))
    array[:] = 99
    assert (server.store.masters["first.bias"] != 99).all()


def test_server_reports_an_interval_per_activity() -> None:
    """Casts, sums and updates, each with its step."""
    driver = ServerDriver(steps=1)
    driver.release_all()
    driver.gradient(1, 0)
    intervals = driver.job.report().intervals
    activities = [interval.activity for interval in intervals]
    assert activities.count("update") == 1
    assert activities.index("cast") < activities.index("sum") < activities.index("update")
    assert {interval.step for interval in intervals} == {1}
    assert all(interval.start_ns <= interval.end_ns for interval in intervals)


@pytest.mark.parametrize(
    "limits", [{"max_gradient_norm": 2.0}, {"loss_scale": LossScaleRule(2000, 1.0, 2.0**15)}]
)
def test_server_streams_a_clipped_update_before_the_next(limits: dict[str, Any]) -> None:
    """Updates follow the order of the stream, so that nodes compute while the last are applied."""
    driver = ServerDriver(window=10, **limits)
    driver.release_all()
    for bucket in driver.installed.plan.gradients:
        driver.gradient(1, bucket.index)
    assert {m.step for m in driver.sent_of(WeightsReady)} == {1}
    num_before = len(driver.job.report().intervals)
    driver.tell(NormTotal(1, 8.0))
    intervals = driver.job.report().intervals[num_before:]
    activities = [i.activity for i in intervals if i.activity != "norm"]
    assert activities[:4] == ["update", "cast", "update", "cast"]
    streamed = [m for m in driver.sent_of(WeightsReady) if m.step == 2]
    assert [m.bucket for m in streamed[:2]] == [0, 1]
    assert {m.loss_scale for m in streamed} == {8.0 if "loss_scale" in limits else None}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_server_casts_masters_to_stream_dtype(dtype: str) -> None:
    """In stream dtype, one parameter after the other; the cast is torch's."""
    driver = ServerDriver(stream_dtype=dtype)
    masters = driver.server.store.masters
    flat = torch.cat([masters[name].reshape(-1) for name in ("first.weight", "first.bias")])
    assert torch.equal(driver.lent[0].payload.view(DTYPES[dtype]), flat.to(DTYPES[dtype]))


class WatchedCore(TorchDispatchMode):
    """A core, and the ops over whole gradients that ran with it and without it."""

    OPS = frozenset({"add_", "div_", "clamp_", "mul_", "linalg_vector_norm", "_fused_sgd_"})

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.is_held = False
        self.ran: dict[bool, set[str]] = {True: set(), False: set()}

    @contextmanager
    def lease(self) -> Iterator[None]:
        self.is_held = True
        yield
        self.is_held = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.ran[self.is_held].add(func.__name__.partition(".")[0])
        return func(*args, **(kwargs or {}))


def test_server_processes_gradients_on_a_leased_core() -> None:
    """Otherwise more threads would compute than the host has cores."""
    core = WatchedCore()
    driver = ServerDriver(
        steps=1, cores=core, max_gradient_norm=2.0, max_gradient_value=3.0, loss_scale=2.0
    )
    driver.release_all()
    with core:
        for bucket in driver.installed.plan.gradients:
            for subtree in (Subtree(0, 2), Subtree(4, 2)):
                slab = driver.mine.allocate(bucket.num_bytes)
                driver.tell(GradientReady(1, 0, bucket.index, subtree, slab))
        driver.tell(NormTotal(1, 8.0))
    assert core.ran[True] >= core.OPS
    assert not core.ran[False] & core.OPS
