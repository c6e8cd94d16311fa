"""The updater: a bucket at a time without a norm, a step at a time with one."""

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from appliance.cores import UnlimitedCores
from memoryx.store import WeightStore
from memoryx.updater import Updater
from tests.support.arenas import StrictArena
from tests.support.plain_sgd import plain_sgd
from tests.support.small_programs import PARAMETERS, program
from wsc.core.messages import GradientReady
from wsc.core.program import plan_streams
from wsc.core.reduce_order import Subtree, leaf, root

PROGRAM = program()
PLAN = plan_streams(PROGRAM, 1)


class Bench:
    """An updater over zero masters, and what it has released."""

    def __init__(self, cores=None, **limits):
        self.store = WeightStore(PARAMETERS)
        spec = plain_sgd(PROGRAM.trained, lr=1.0, **limits)
        self.store.train_with(spec)
        self.intervals = []
        cores = cores or UnlimitedCores()
        self.updater = Updater(0, self.store, PROGRAM, PLAN.gradients, spec, cores, self.intervals)
        self.released = []
        self.arena = StrictArena()

    def take(self, bucket, value, subtree=None, step=1):
        slab = self.arena.allocate(PLAN.gradients[bucket].num_bytes)
        slab.view(torch.float32).fill_(value)
        subtree = subtree or root(PROGRAM.num_micro_batches)
        message = GradientReady(step, 0, bucket, subtree, slab)

        def release():
            self.released.append((bucket, subtree))
            slab.free()

        return self.updater.take(message, release)


@pytest.mark.parametrize("bucket", range(len(PLAN.gradients)))
def test_a_whole_gradient_is_applied_at_once(bucket):
    """Without clipping by norm no bucket waits for another."""
    bench = Bench()
    updated = bench.take(bucket, 2.0)
    assert updated.names == PLAN.gradients[bucket].names
    assert updated.partial is None
    for name, master in bench.store.masters.items():
        assert (master == (-2.0 if name in updated.names else 0.0)).all()
    assert bench.released == [(bucket, root(5))]


def test_a_part_of_the_batch_waits_for_the_rest():
    """Nothing is applied before the last micro-batch has come."""
    bench = Bench()
    for index in range(4):
        assert bench.take(0, 1.0, leaf(index, 5)).names == ()
    assert (bench.store.masters["last.weight"] == 0).all()
    assert bench.take(0, 1.0, Subtree(4, 2)).names == PLAN.gradients[0].names
    assert (bench.store.masters["last.weight"] == -5).all()
    assert len(bench.released) == 5


@given(st.permutations(range(5)))
def test_take_adds_in_the_reduce_order(order):
    """Whatever arrives first, the sum is the canonical one, and memory goes back at once."""
    values = [1e8, 1.0, -1e8, 3.0, 0.25]
    bench = Bench()
    for index in order:
        bench.take(0, values[index], leaf(index, 5))
        assert bench.arena.live == set()
    v = torch.tensor(values)
    expected = -(((v[0] + v[1]) + (v[2] + v[3])) + v[4])
    assert (bench.store.masters["last.weight"] == expected).all()
    assert len(bench.released) == 5


def test_take_uses_a_whole_sum_in_place():
    """One tree that added everything: the sender's memory is held until the norm is known."""
    bench = Bench(max_gradient_norm=1.0)
    bench.take(0, 2.0)
    assert len(bench.arena.live) == 1
    bench.take(1, 2.0)
    bench.updater.clip_and_apply(1, norm=1.0)
    assert bench.arena.live == set()


def test_take_refuses_a_subtree_twice():
    """A gradient counts once."""
    bench = Bench()
    bench.take(0, 1.0, Subtree(0, 0))
    with pytest.raises(ValueError, match="twice"):
        bench.take(0, 1.0, Subtree(0, 0))


def test_with_a_norm_all_buckets_wait_for_each_other():
    """The last of them yields the server's part of the norm, in master order."""
    bench = Bench(max_gradient_norm=1.0)
    assert bench.take(0, 3.0) == bench.take(0, 3.0, step=2)  # two steps do not mix
    updated = bench.take(1, 4.0)
    assert updated.names == ()
    elements = [PROGRAM.parameter[name].num_elements for name in PROGRAM.trained]
    norms = dict(updated.partial.norms)
    assert [norms[place] for place in range(3)] == pytest.approx(
        [value * count**0.5 for value, count in zip((4.0, 4.0, 3.0), elements, strict=True)]
    )
    assert all((master == 0).all() for master in bench.store.masters.values())


def test_the_total_clips_and_applies():
    """Every gradient is scaled by limit / total, then all names are at the new version."""
    bench = Bench(max_gradient_norm=2.0)
    bench.take(0, 4.0)
    bench.take(1, 4.0)
    updated = bench.updater.clip_and_apply(1, norm=8.0)
    assert set(updated.names) == set(PROGRAM.trained)
    for name in PROGRAM.trained:
        assert bench.store.masters[name].flatten().tolist() == pytest.approx(
            [-1.0] * PROGRAM.parameter[name].num_elements
        )
    assert sorted(bench.released) == [(0, root(5)), (1, root(5))]


def test_updates_are_noted_for_the_trace():
    """One interval per update, with its step."""
    bench = Bench()
    bench.take(0, 1.0)
    (interval,) = bench.intervals
    assert (interval.activity, interval.step) == ("update", 1)
    assert interval.start_ns <= interval.end_ns


class WatchedCore(TorchDispatchMode):
    """A core, and the ops over whole gradients that ran with it and without it."""

    OPS = frozenset({"add_", "div_", "clamp_", "mul_", "linalg_vector_norm", "_fused_sgd_"})

    def __init__(self):
        super().__init__()
        self.is_held = False
        self.ran = {True: set(), False: set()}

    @contextmanager
    def lease(self):
        self.is_held = True
        yield
        self.is_held = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ran[self.is_held].add(func.__name__.partition(".")[0])
        return func(*args, **(kwargs or {}))


def test_whole_gradients_are_gone_over_on_a_leased_core_only():
    """Or more threads would compute than the host has cores."""
    core = WatchedCore()
    bench = Bench(core, max_gradient_norm=2.0, max_gradient_value=3.0, loss_scale=2.0)
    with core:
        for bucket in (0, 1):
            bench.take(bucket, 8.0, Subtree(0, 2))
            bench.take(bucket, 8.0, Subtree(4, 2))
        bench.updater.clip_and_apply(1, norm=8.0)
    assert core.ran[True] >= core.OPS
    assert not core.ran[False] & core.OPS
