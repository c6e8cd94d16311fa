"""A switch driven by hand: weights go down untouched, siblings are added on the way up."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from appliance.placement.cores import UnlimitedCores
from swarmx.switch import SwitchSpec
from tests.support.programs.small_programs import program
from tests.support.roles.arenas import StrictArena
from tests.support.roles.subtrees import merged_subtrees
from waferstream.core.messages.messages import (
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    WeightsReady,
    WeightsReleased,
)
from waferstream.core.messages.reduce_order import Subtree, leaf, root
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.schedule import Rounds
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.core.roles.role import Job, RoleContext
from waferstream.numerics.precision import DTYPES

NUM_MICRO_BATCHES = 5
NO_FEED = InputFeed(tuple, ())
Answers = list[tuple[str, Message]]
"""Receivers and messages."""
CHILDREN = ("csx-0", "csx-1", "csx-2")


class Driver:
    """A switch over some nodes, and slabs that its neighbours lend to it."""

    def __init__(
        self,
        nodes: range = range(3),
        num_nodes: int = 3,
        parent: str | None = None,
        num_servers: int = 1,
        gradient_dtype: str = "float32",
    ) -> None:
        tiny = replace(program(), gradient_dtype=gradient_dtype)
        plan = plan_streams(tiny, num_servers)
        rounds = Rounds(NUM_MICRO_BATCHES, num_nodes)
        children = tuple(f"csx-{node}" for node in nodes)
        self.program, self.plan, self.rounds = tiny, plan, rounds
        self.arena, self.lenders = StrictArena(), StrictArena()
        self.switch = SwitchSpec(1, parent, children, nodes).build(
            RoleContext(self.arena, UnlimitedCores())
        )
        self.switch.do(Install(Installation(tiny, (), plan, rounds, NO_FEED, None)))
        self.begin()

    def begin(self) -> None:
        self.job = self.switch.begin(Job(ProgramKind.TRAIN, 1, 1))
        assert list(self.job.start()) == []

    def tell(self, source: str, message: Message) -> Answers:
        answers = list(self.job.handle(Envelope(source, self.switch.name, message)))
        assert all(envelope.source == self.switch.name for envelope in answers)
        return [(envelope.target, envelope.message) for envelope in answers]

    def gradient(
        self,
        micro_batch: int,
        value: float,
        round_index: int = 0,
        bucket: int = 0,
        subtree: Subtree | None = None,
    ) -> Answers:
        subtree = subtree or leaf(micro_batch, NUM_MICRO_BATCHES)
        dtype = DTYPES[self.program.dtype_of_sum(subtree.size(NUM_MICRO_BATCHES))]
        slab = self.lenders.allocate(self.plan.gradients[bucket].num_elements * dtype.itemsize)
        slab.view(dtype).fill_(value)
        message = GradientReady(1, round_index, bucket, subtree, slab)
        return self.tell(f"csx-{self.rounds.node_of(micro_batch)}", message)


def up(answers: Answers, target: str = "wgt-0") -> dict[Subtree, float]:
    """Return the value of each subtree that is sent to ``target``."""
    found: dict[Subtree, float] = {}
    for to, message in answers:
        if isinstance(message, GradientReady):
            assert to == target
            values = message.payload.view(torch.float32)
            assert (values == values[0]).all()
            found[message.subtree] = values[0].item()
    return found


def released(answers: Answers) -> set[tuple[str, int]]:
    return {(to, m.subtree.lo) for to, m in answers if isinstance(m, GradientReleased)}


def test_switch_relays_the_same_weights_payload() -> None:
    """The same payload object: nothing is copied, nothing is allocated."""
    driver = Driver()
    slab = driver.lenders.allocate(8)
    ready = WeightsReady(1, 0, 0, slab)
    answers = driver.tell("wgt-0", ready)
    assert [to for to, _ in answers] == list(CHILDREN)
    assert all(message is ready for _, message in answers)
    assert driver.arena.allocated == 0


def test_switch_releases_weights_after_all_children() -> None:
    """The sender of the weights gets one release, with the last child's."""
    driver = Driver(num_servers=2)
    slab = driver.lenders.allocate(8)
    driver.tell("wgt-1", WeightsReady(1, 0, 1, slab))
    released = WeightsReleased(1, 0, 1)
    assert driver.tell("csx-1", released) == []
    assert driver.tell("csx-0", released) == []
    assert driver.tell("csx-2", released) == [("wgt-1", released)]


def test_switch_adds_siblings_and_forwards_others() -> None:
    """Round 0 of 5 micro-batches on 3 nodes: 0 + 1 become one subtree, 2 goes on alone."""
    driver = Driver()
    assert up(driver.gradient(0, 1.0)) == {}
    assert up(driver.gradient(2, 4.0)) == {}
    answers = driver.gradient(1, 2.0)
    assert up(answers) == {Subtree(0, 1): 3.0, Subtree(2, 0): 4.0}
    assert driver.arena.allocated == 1


def test_switch_forwards_without_a_copy() -> None:
    """A subtree without a sibling here is forwarded in its sender's memory."""
    driver = Driver(nodes=range(2, 3))
    ((_, message),) = driver.gradient(2, 4.0)
    assert isinstance(message, GradientReady)
    assert message.payload in driver.lenders.live
    assert driver.arena.allocated == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_switch_adds_single_micro_batches_of_a_half_type_in_fp32(dtype: str) -> None:
    """The sum of 256 and 1/256 is no value of either type; what is forwarded stays as it came."""
    driver = Driver(gradient_dtype=dtype)
    driver.gradient(0, 256.0)
    driver.gradient(1, 1 / 256)
    added, forwarded = (message for _, message in driver.gradient(2, 4.0)[:2])
    assert isinstance(added, GradientReady)
    assert isinstance(forwarded, GradientReady)
    assert (added.payload.view(torch.float32) == 256 + 1 / 256).all()
    assert (forwarded.payload.view(DTYPES[dtype]) == 4).all()
    assert forwarded.payload in driver.lenders.live


def test_switch_adds_a_single_micro_batch_to_a_sum() -> None:
    """The last of five is a whole subtree, the sibling of the first four."""
    driver = Driver(nodes=range(2), num_nodes=2, gradient_dtype="bfloat16")
    rounds = Rounds(NUM_MICRO_BATCHES, 2, 4)
    driver.rounds = rounds
    driver.switch.do(Install(Installation(driver.program, (), driver.plan, rounds, NO_FEED, None)))
    driver.begin()
    assert up(driver.gradient(0, 3 / 256, subtree=Subtree(0, 2))) == {}
    assert up(driver.gradient(4, 256.0)) == {root(5): 256 + 3 / 256}


def test_switch_releases_gradients_once_they_are_added() -> None:
    """At once for what was added; for what was forwarded, when the reader above is done."""
    driver = Driver()
    assert released(driver.gradient(0, 1.0)) == set()
    assert released(driver.gradient(1, 2.0)) == {("csx-0", 0), ("csx-1", 1)}
    forwarded = driver.gradient(2, 4.0)
    assert released(forwarded) == set()
    answers = driver.tell("wgt-0", GradientReleased(1, 0, 0, Subtree(2, 0)))
    assert released(answers) == {("csx-2", 2)}
    (own,) = driver.arena.live
    assert driver.tell("wgt-0", GradientReleased(1, 0, 0, Subtree(0, 1))) == []
    assert own not in driver.arena.live


@given(st.permutations(range(NUM_MICRO_BATCHES)))
def test_switch_sum_is_independent_of_arrival_order(order: list[int]) -> None:
    """Values so unequal that another order of additions would give other bits."""
    values = [1e8, 1.0, -1e8, 3.0, 0.1]
    driver = Driver(nodes=range(5), num_nodes=5)
    sums: dict[Subtree, float] = {}
    for index in order:
        sums |= up(driver.gradient(index, values[index]))
    f = [torch.tensor(value) for value in values]
    assert sums == {root(5): (((f[0] + f[1]) + (f[2] + f[3])) + f[4]).item()}


@given(st.permutations(range(3, 8)))
def test_inner_switch_sends_maximal_subtrees(order: list[int]) -> None:
    """Of nodes 3 to 7 of 11 it forwards what those micro-batches add up to, to its parent."""
    driver = Driver(nodes=range(3, 8), num_nodes=11, parent="br-0")
    driver.switch.do(
        Install(Installation(program(), (), driver.plan, Rounds(11, 11), NO_FEED, None))
    )
    driver.begin()
    sums: dict[Subtree, float] = {}
    for index in order:
        slab = driver.lenders.allocate(driver.plan.gradients[0].num_bytes)
        slab.view(torch.float32).fill_(2.0**index)
        ready = GradientReady(1, 0, 0, leaf(index, 11), slab)
        sums |= up(driver.tell(f"csx-{index}", ready), target="br-0")
    assert list(sums) == merged_subtrees(range(3, 8), 11)
    assert sum(sums.values()) == sum(2.0**index for index in range(3, 8))


def test_switch_counts_all_micro_batches_of_a_subtree() -> None:
    """A child that sends one subtree for several micro-batches is done with all of them."""
    driver = Driver(nodes=range(2), num_nodes=2)
    driver.switch.do(
        Install(Installation(program(), (), driver.plan, Rounds(5, 2, 2), NO_FEED, None))
    )
    driver.begin()
    assert up(driver.gradient(0, 3.0, subtree=Subtree(0, 1))) == {}
    assert up(driver.gradient(2, 4.0, subtree=Subtree(2, 1))) == {Subtree(0, 2): 7.0}


def test_switch_keeps_rounds_and_buckets_apart() -> None:
    """Each has its own sum, and goes to the server that owns it."""
    driver = Driver(num_servers=2)
    owners = {bucket.index: bucket.server for bucket in driver.plan.gradients}
    assert set(owners.values()) == {0, 1}
    for index in range(3):
        for bucket, server in owners.items():
            answers = driver.gradient(index, 1.0, bucket=bucket)
            if index == 2:
                assert up(answers, f"wgt-{server}") == {Subtree(0, 1): 2.0, Subtree(2, 0): 1.0}
    driver.gradient(3, 5.0, round_index=1)
    answers = driver.gradient(4, 5.0, round_index=1)
    assert up(answers, f"wgt-{owners[0]}") == {Subtree(3, 0): 5.0, Subtree(4, 2): 5.0}


@pytest.mark.parametrize("nodes", [range(3), range(2, 3)])
def test_switch_finishes_after_all_weights_and_gradients(nodes: range) -> None:
    """All weights released, all gradients up, and every payload of its own back."""
    driver = Driver(nodes=nodes)
    children = [f"csx-{node}" for node in nodes]
    forwarded: Answers = []
    for round_index in range(2):
        for bucket in driver.plan.weights:
            ready = WeightsReady(1, round_index, bucket.index, driver.lenders.allocate(4))
            driver.tell("wgt-0", ready)
            for child in children:
                driver.tell(child, WeightsReleased(1, round_index, bucket.index))
        for bucket in driver.plan.gradients:
            for index in driver.rounds.of_nodes(round_index, nodes):
                forwarded += driver.gradient(index, 1.0, round_index, bucket.index)
    finished_before_release = driver.job.finished
    for _, m in forwarded:
        if isinstance(m, GradientReady):
            driver.tell("wgt-0", GradientReleased(m.step, m.round, m.bucket, m.subtree))
    assert (finished_before_release, driver.job.finished) == (False, True)
    assert driver.arena.live == set()
