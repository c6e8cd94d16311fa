"""The collector: a bucket at a time without a norm, a step at a time with one."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memoryx.job.collector import Collected, GradientCollector, NormExchange
from memoryx.job.gradient_changes import GradientChanges
from memoryx.job.watcher import NormNotes
from memoryx.memory.memory import Dram
from memoryx.optim.clip import gradient_norms, total_norm
from memoryx.sparsity.masks import Masks
from tests.support.plain_torch.plain_sgd import plain_sgd
from tests.support.programs.small_programs import program
from tests.support.roles.arenas import StrictArena
from waferstream.core.messages.messages import GradientReady, NormPartial, NormTotal
from waferstream.core.messages.reduce_order import Subtree, leaf, root
from waferstream.core.optimizer import LossScaleRule
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.role import Job, Report
from waferstream.numerics.precision import DTYPES

PROGRAM = program()
PLAN = plan_streams(PROGRAM, 1)
NUM_BUCKETS = len(PLAN.gradients)


class Bench:
    """A collector, and what it has released."""

    def __init__(self, program: Program = PROGRAM, **limits: Any) -> None:
        spec = plain_sgd(PROGRAM.trained, lr=1.0, **limits)
        notes = NormNotes(PROGRAM, Job(ProgramKind.TRAIN, 1, 1), Report("wgt-0"))
        self.program = program
        self.collector = GradientCollector(
            0, program, PLAN.gradients, spec, notes, Masks(Dram()), GradientChanges(())
        )
        self.released: list[tuple[int, Subtree]] = []
        self.arena = StrictArena()

    def take(
        self,
        bucket: int,
        value: float,
        subtree: Subtree | None = None,
        step: int = 1,
        scale: float = 1.0,
    ) -> Collected:
        total = self.program.num_micro_batches
        subtree = subtree or root(total)
        dtype = DTYPES[self.program.dtype_of_sum(subtree.size(total))]
        slab = self.arena.allocate(PLAN.gradients[bucket].num_elements * dtype.itemsize)
        slab.view(dtype).fill_(value)

        def release() -> None:
            self.released.append((bucket, subtree))
            slab.free()

        ready = GradientReady(step, 0, bucket, subtree, slab)
        return self.collector.take(ready, release, loss_scale=scale, update=step, weights={})


@pytest.mark.parametrize("bucket", range(NUM_BUCKETS))
def test_take_returns_a_whole_gradient_at_once(bucket: int) -> None:
    """Without clipping by norm no bucket waits for another."""
    bench = Bench()
    collected = bench.take(bucket, 2.0)
    assert collected.partial is None
    gradients = bench.collector.gradients(bucket, collected.sums[bucket], 1)
    assert tuple(gradients) == PLAN.gradients[bucket].names
    for name, gradient in gradients.items():
        assert gradient.shape == PROGRAM.parameter[name].shape
        assert (gradient == 2.0).all()
    assert bench.released == []


def test_take_waits_for_the_whole_batch() -> None:
    bench = Bench()
    for index in range(4):
        assert bench.take(0, 1.0, leaf(index, 5)) == Collected()
    ((bucket, whole),) = bench.take(0, 1.0, Subtree(4, 2)).sums.items()
    assert bucket == 0
    assert (whole.flat == 5).all()


@given(st.permutations(range(5)))
def test_take_adds_in_the_reduce_order(order: list[int]) -> None:
    """In any order of arrival the sum is the canonical one, and memory goes back at once."""
    values = [1e8, 1.0, -1e8, 3.0, 0.25]
    bench = Bench()
    *early, last = [bench.take(0, values[index], leaf(index, 5)) for index in order]
    assert early == [Collected()] * 4
    v = torch.tensor(values)
    assert (last.sums[0].flat == ((v[0] + v[1]) + (v[2] + v[3])) + v[4]).all()
    assert len(bench.released) >= 4
    last.sums[0].release()
    assert bench.arena.live == set()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_take_adds_single_micro_batches_of_a_half_type_in_fp32(dtype: str) -> None:
    """Each, and the sum of the others, has memory of the server while it waits."""
    bench = Bench(replace(PROGRAM, gradient_dtype=dtype))
    values = [256.0, 1 / 256, 1.0, 3.0, 0.25]
    *_, last = [bench.take(0, values[index], leaf(index, 5)) for index in (4, 1, 2, 3, 0)]
    v = torch.tensor(values)
    assert last.sums[0].flat.dtype == torch.float32
    assert (last.sums[0].flat == ((v[0] + v[1]) + (v[2] + v[3])) + v[4]).all()
    assert bench.arena.live == set()


def test_take_casts_the_gradient_of_a_batch_of_one_micro_batch() -> None:
    """It is scaled in place, which would round it again."""
    bench = Bench(replace(PROGRAM, num_micro_batches=1, gradient_dtype="bfloat16"))
    whole = bench.take(0, 1.0, scale=3.0).sums[0]
    assert torch.equal(whole.flat, torch.ones_like(whole.flat) / 3)
    assert bench.arena.live == set()


def test_take_uses_a_whole_sum_in_place() -> None:
    """One tree that added everything: no copy, and the sender waits until it is applied."""
    bench = Bench()
    whole = bench.take(0, 2.0).sums[0]
    assert {whole.payload} == bench.arena.live
    whole.release()
    assert bench.arena.live == set()


def test_take_refuses_a_subtree_twice() -> None:
    """A gradient counts once."""
    bench = Bench()
    bench.take(0, 1.0, Subtree(0, 0))
    with pytest.raises(ValueError, match="twice"):
        bench.take(0, 1.0, Subtree(0, 0))


def test_take_yields_the_norms_of_a_complete_step() -> None:
    """The last bucket yields the server's part of the norm, in master order."""
    bench = Bench(max_gradient_norm=1.0)
    assert bench.take(0, 3.0) == bench.take(0, 3.0, step=2) == Collected()  # steps do not mix
    collected = bench.take(1, 4.0)
    assert collected.sums == {}
    elements = [PROGRAM.parameter[name].num_elements for name in PROGRAM.trained]
    assert collected.partial is not None
    norms = dict(collected.partial.norms)
    assert [norms[place] for place in range(3)] == pytest.approx(
        [value * count**0.5 for value, count in zip((4.0, 4.0, 3.0), elements, strict=True)]
    )


@pytest.mark.parametrize(("norm", "coefficient"), [(8.0, 0.25), (1.0, 1.0), (math.inf, 1.0)])
def test_settle_returns_the_sums_and_their_factor(norm: float, coefficient: float) -> None:
    """limit / total above the limit; a step that is not finite is skipped, so nothing is scaled."""
    bench = Bench(max_gradient_norm=2.0)
    bench.take(0, 4.0)
    bench.take(1, 4.0)
    settled = bench.collector.settle(NormTotal(1, norm, is_finite=math.isfinite(norm)))
    assert settled.coefficient == pytest.approx(coefficient)
    gradients: dict[str, torch.Tensor] = {}
    for bucket, whole in settled.sums.items():
        gradients |= bench.collector.gradients(bucket, whole, 1)
    assert set(gradients) == set(PROGRAM.trained)
    assert all((gradient == 4.0).all() for gradient in gradients.values())
    assert bench.released == []


DYNAMIC = LossScaleRule(2000, 1.0, 2.0**15)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("limits", [{}, {"max_gradient_norm": 1.0}, {"max_gradient_value": 1.0}])
def test_take_finds_an_overflow_under_a_dynamic_scale(bad: float, limits: dict[str, Any]) -> None:
    """In any bucket, also where a clamp would hide it; other steps are not concerned."""
    bench = Bench(loss_scale=DYNAMIC, **limits)
    bench.take(0, bad, step=1)
    bench.take(0, 8.0, step=2, scale=4.0)
    found = [bench.take(1, 8.0, step=step, scale=4.0).partial for step in (1, 2)]
    assert [partial and partial.is_finite for partial in found] == [False, True]
    sums = bench.collector.settle(NormTotal(2, norm=0.5)).sums
    expected = 1.0 if "max_gradient_value" in limits else 2.0
    assert all((whole.flat == expected).all() for whole in sums.values())


def test_exchange_agrees_on_an_overflow_of_one_server() -> None:
    exchange = NormExchange([0, 2])
    assert list(exchange.take(NormPartial(5, 2, (), is_finite=False))) == []
    totals = dict(exchange.take(NormPartial(5, 0, ())))
    assert {name: total.is_finite for name, total in totals.items()} == {
        "wgt-0": False,
        "wgt-2": False,
    }


GENERATOR = torch.Generator().manual_seed(0)
GRADIENTS = [torch.randn(7, generator=GENERATOR) * 3.0**i for i in range(6)]
NORMS = gradient_norms(GRADIENTS)


@given(st.lists(st.integers(0, 3), min_size=6, max_size=6), st.randoms(use_true_random=False))
def test_norm_total_is_independent_of_ownership(owners: list[int], order: random.Random) -> None:
    """Bit for bit torch's norm over all gradients in master order, in any order of arrival."""
    servers = sorted(set(owners))
    exchange = NormExchange(servers)
    partials = [
        NormPartial(
            1, server, tuple((i, NORMS[i]) for i, owner in enumerate(owners) if owner == server)
        )
        for server in servers
    ]
    order.shuffle(partials)
    *early, last = [list(exchange.take(partial)) for partial in partials]
    assert not any(early)
    assert [target for target, _ in last] == [f"wgt-{server}" for server in servers]
    parameters = [torch.nn.Parameter(gradient) for gradient in GRADIENTS]
    for parameter, gradient in zip(parameters, GRADIENTS, strict=True):
        parameter.grad = gradient.clone()
    expected = float(torch.nn.utils.clip_grad_norm_(parameters, 1.0))
    assert {total for _, total in last} == {NormTotal(1, expected)}


@pytest.mark.parametrize(("servers", "leader"), [([0, 1], "wgt-0"), ([2, 5], "wgt-2")])
def test_norm_leader_is_the_lowest_owning_server(servers: list[int], leader: str) -> None:
    """Server 0 may hold frozen weights only."""
    assert NormExchange(servers).leader == leader


def test_norm_exchange_keeps_steps_apart() -> None:
    """A fast server may be a step ahead of a slow one."""
    exchange = NormExchange([0, 1])
    assert list(exchange.take(NormPartial(1, 0, ((0, 3.0),)))) == []
    assert list(exchange.take(NormPartial(2, 0, ((0, 5.0),)))) == []
    first = list(exchange.take(NormPartial(1, 1, ((1, 4.0),))))
    second = list(exchange.take(NormPartial(2, 1, ((1, 12.0),))))
    assert [message for _, message in first] == [NormTotal(1, 5.0)] * 2
    assert [message for _, message in second] == [NormTotal(2, 13.0)] * 2


def test_norm_total_adds_in_master_order() -> None:
    """Positions decide, not the order inside a message."""
    exchange = NormExchange([0])
    shuffled = tuple((i, NORMS[i]) for i in (3, 0, 5, 1, 4, 2))
    ((_, total),) = exchange.take(NormPartial(1, 0, shuffled))
    assert total.norm == total_norm(NORMS)
