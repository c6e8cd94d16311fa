"""The contract of all roles: weight server, switch, CS node, input worker, activation server.

The roles are real, their program is tiny, their arenas detect wrong reads and frees, and messages
arrive in any order that a link allows.
"""

import pickle
import random
from functools import cache, partial

import pytest
import torch
from hypothesis import given, settings

from appliance.elaboration.elaborate import elaborate
from tests.contract.small_cluster import MACHINE, SIZE, assert_same, office, programs, weights
from tests.support.roles.arenas import StrictArena
from tests.support.roles.local_machine import BF16, FP32
from tests.support.roles.sorting_office import ORDERS, RepicklingOffice, Route
from waferstream.core.messages.messages import (
    Abort,
    BatchReady,
    BatchReleased,
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    NormPartial,
    NormTotal,
    StashReady,
    StashReleased,
    StashWanted,
    StepDone,
    UpdateReady,
    UpdateReleased,
    UpdateSkipped,
    WeightsReady,
    WeightsReleased,
)
from waferstream.core.messages.reduce_order import Subtree
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import Job, Value
from waferstream.numerics.precision import StreamPrecision

ROLES = ("wgt-0", "wgt-1", "rpl-1", "br-0", "br-2", "csx-0", "csx-2", "wrk-1", "act-0", "act-1")
BOX = StrictArena().allocate(1)  # a payload that is never read
MESSAGES = {
    "wgt": (WeightsReleased, GradientReady, NormPartial, NormTotal, UpdateReleased, StepDone),
    "rpl": (NormTotal, UpdateReady, UpdateSkipped, StepDone),
    "br": (WeightsReady, WeightsReleased, GradientReady, GradientReleased),
    "csx": (WeightsReady, BatchReady, GradientReleased, StashReady, StashReleased),
    "wrk": (BatchReleased,),
    "act": (StashReady, StashWanted, StashReleased),
}
ANY_MESSAGE: list[Message] = [
    WeightsReady(1, 0, 0, BOX),
    WeightsReleased(1, 0, 0),
    GradientReady(1, 0, 0, Subtree(0, 0), BOX),
    GradientReleased(1, 0, 0, Subtree(0, 0)),
    BatchReady(1, 0, BOX),
    BatchReleased(1, 0),
    StashReady(1, 0, 0, BOX),
    StashWanted(1, 0, 0),
    StashReleased(1, 0, 0),
    NormPartial(1, 0, ()),
    NormTotal(1, 1.0),
    UpdateReady(1, 0, 1, BOX),
    UpdateSkipped(1, 0),
    UpdateReleased(1, 0),
    StepDone(1),
    Abort(1),
]
each_role = pytest.mark.parametrize("role", ROLES)


def train_job(first: int = 1, last: int = 2) -> Job:
    return Job(ProgramKind.TRAIN, first, last)


@cache
def expected_after_two_steps(
    precision: StreamPrecision = FP32,
) -> tuple[dict[str, torch.Tensor], list[dict[tuple[int, int], tuple[Value, ...]]]]:
    roles = office(precision=precision)
    reports = roles.run(train_job())
    return weights(roles), [report.results for report in reports]


@each_role
def test_role_spec_round_trips_through_pickle(role: str) -> None:
    """A pickled spec builds the same role in another process."""
    roles = elaborate(programs()[1].program.parameters, SIZE, MACHINE, seed=0)
    (spec,) = [spec for spec in roles if spec.name == role]
    again = pickle.loads(pickle.dumps(spec))
    assert again == spec
    assert office().roles[role].name == again.name == role


@each_role
def test_job_is_finished_only_at_its_end(role: str) -> None:
    """Not right after ``start``; and its report has the name of the role."""
    roles = office()
    reports = roles.run(train_job())
    assert role in roles.unfinished_at_first
    assert roles.jobs[role].finished
    assert role in [report.role for report in reports]


@each_role
def test_job_frees_all_slabs(role: str) -> None:
    """Every payload that was allocated has been freed, once, after its last reader."""
    roles = office()
    roles.run(train_job())
    assert roles.arenas[role].live == set()
    sends_payloads = {e.source for e in roles.delivered if getattr(e.message, "payload", None)}
    assert (role in sends_payloads) == (role != "rpl-1")  # a replica only reads


@each_role
def test_job_refuses_messages_of_other_protocols(role: str) -> None:
    """A wiring mistake is an immediate error, not a deadlock."""
    target = office().roles[role].begin(train_job())
    list(target.start())
    mine = MESSAGES[role.partition("-")[0]]
    for message in ANY_MESSAGE:
        if not isinstance(message, mine):
            with pytest.raises(TypeError, match=f"{role} does not take {type(message).__name__}"):
                list(target.handle(Envelope("stranger", role, message)))


@pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
@settings(max_examples=15, deadline=None)
@given(order=ORDERS)
def test_result_is_independent_of_arrival_order(
    order: random.Random, precision: StreamPrecision
) -> None:
    """Any interleaving gives the same weights and results, and leaves no slab."""
    roles = office(order.choice, precision=precision)
    reports = roles.run(train_job())
    masters, results = expected_after_two_steps(precision)
    assert_same(weights(roles), masters)
    assert [report.results for report in reports] == results
    assert not any(arena.live for arena in roles.arenas.values())


@pytest.mark.parametrize("favoured", ROLES)
def test_result_is_independent_of_one_slow_role(favoured: str) -> None:
    """Its messages are delivered first, or only when there are no others."""

    def choose(sign: int, routes: list[Route]) -> Route:
        return min(routes, key=lambda route: sign * (route[1] == favoured))

    for sign in (-1, 1):
        roles = office(partial(choose, sign))
        roles.run(train_job())
        assert_same(weights(roles), expected_after_two_steps()[0])


@settings(max_examples=5, deadline=None)
@given(ORDERS)
def test_job_states_survive_pickling_between_messages(order: random.Random) -> None:
    """A restored state goes on to the same bits, wherever it holds no sum in a slab."""
    roles = office(order.choice, RepicklingOffice)
    assert isinstance(roles, RepicklingOffice)
    reports = roles.run(train_job())
    masters, results = expected_after_two_steps()
    assert_same(weights(roles), masters)
    assert [report.results for report in reports] == results
    assert all(roles.repickled[role] > 1 for role in roles.roles)


def test_two_jobs_equal_one_job_of_both() -> None:
    """No state of a job carries over to the next one."""
    roles = office()
    roles.run(train_job(1, 1))
    reports = roles.run(train_job(2, 2))
    masters, results = expected_after_two_steps()
    assert_same(weights(roles), masters)
    second = [{key: v for key, v in of_role.items() if key[0] == 2} for of_role in results]
    assert [report.results for report in reports] == second


def test_evaluation_leaves_the_weights_alone() -> None:
    """Before, between and after training steps, with any first step."""
    roles = office(random.Random(0).choice)
    before = weights(roles)
    roles.run(Job(ProgramKind.EVAL, 1, 3))
    assert_same(weights(roles), before)
    roles.run(train_job(1, 1))
    trained = weights(roles)
    roles.run(Job(ProgramKind.EVAL, 1, 1))
    assert_same(weights(roles), trained)
    roles.run(train_job(2, 2))
    assert_same(weights(roles), expected_after_two_steps()[0])


def test_evaluation_streams_no_gradient() -> None:
    """Weights down, inputs in, results out."""
    roles = office()
    roles.run(Job(ProgramKind.EVAL, 1, 2))
    kinds = {type(envelope.message) for envelope in roles.delivered}
    assert kinds == {WeightsReady, WeightsReleased, BatchReady, BatchReleased}


def test_every_payload_gets_one_credit() -> None:
    """Ready and released come in pairs on every stream, between the same two roles."""
    roles = office()
    roles.run(train_job())
    for ready, released in (
        (WeightsReady, WeightsReleased),
        (GradientReady, GradientReleased),
        (BatchReady, BatchReleased),
        (StashReady, StashReleased),
    ):
        lent = [(e.source, e.target, _key(e)) for e in roles.delivered if type(e.message) is ready]
        back = [
            (e.target, e.source, _key(e)) for e in roles.delivered if type(e.message) is released
        ]
        assert sorted(lent) == sorted(back)
        assert len(set(lent)) == len(lent) > 0


def _key(envelope: Envelope) -> tuple[str, ...]:
    content = {"payload", "label_weights", "loss_scale"}
    fields = vars(envelope.message)
    return tuple(repr(value) for name, value in fields.items() if name not in content)


def test_roles_send_to_their_neighbours_only() -> None:
    """Servers to the root and each other, switches along the tree, nodes up and to their worker."""
    roles = office()
    roles.run(train_job())
    routes = {(envelope.source, envelope.target) for envelope in roles.delivered}
    both_ways = [
        *[("wgt-0", "br-0"), ("wgt-1", "br-0"), ("br-0", "br-1"), ("br-0", "br-2")],
        *[("br-1", "csx-0"), ("br-2", "csx-1"), ("br-2", "csx-2")],
        *[("csx-0", "wrk-0"), ("csx-1", "wrk-1"), ("csx-2", "wrk-0")],
        *[("wgt-0", "rpl-0"), ("wgt-1", "rpl-1")],
    ]
    both_ways += [(f"csx-{node}", f"act-{server}") for node in range(3) for server in range(2)]
    norms = {("wgt-0", "wgt-0"), ("wgt-1", "wgt-0"), ("wgt-0", "wgt-1")}
    assert routes == {*both_ways, *((b, a) for a, b in both_ways), *norms}
