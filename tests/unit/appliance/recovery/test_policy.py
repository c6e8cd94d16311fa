"""The rules of recovery, one by one."""

import pytest

from appliance.recovery.policy import (
    REST_STEPS,
    TAINTING_FAILURES,
    TAINTING_STEPS,
    Policy,
)
from appliance.spec import AutoRestart
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceNanError,
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
    ConfigError,
    DataError,
    WaferStreamError,
)

LOST = ApplianceRuntimeServerError("a role died", code="role-died")


def policy(restarts: int = 100, least: int = 1, num_csx: int = 4) -> Policy:
    return Policy(AutoRestart(max_num_restarts=restarts, min_num_csx=least), num_csx)


@pytest.mark.parametrize(
    "kind", [ConfigError, DataError, ApplianceNanError, ApplianceResourceExhausted]
)
def test_error_that_comes_again_is_given_up(kind: type[WaferStreamError]) -> None:
    assert policy().decide(kind("no", code="no"), []).action == "give up"


def test_lost_role_is_replaced_and_others_are_tried_again() -> None:
    stalled = ApplianceDeadlockError("no", code="no")
    assert policy().decide(LOST, ["br-0"]).action == "replace"
    assert policy().decide(stalled, []).action == "retry"


def test_lost_weights_are_given_up() -> None:
    """Whatever else is lost."""
    assert policy().decide(LOST, ["csx-0", "wgt-1"]).action == "give up"


@pytest.mark.parametrize("code", ["host-lost", "host-silent"])
def test_roles_of_a_lost_host_are_not_replaced_there(code: str) -> None:
    lost = ApplianceRuntimeServerError("csx-1 was lost with its host", code=code)
    assert policy().decide(lost, ["csx-1", "br-2"]).action == "give up"


def test_failures_count_from_the_last_finished_step() -> None:
    rules = policy(restarts=2)
    for _ in range(3):
        assert [rules.decide(LOST, ["wrk-0"]).action for _ in range(2)] == ["replace"] * 2
        rules.note_steps(1)
    assert [rules.decide(LOST, ["wrk-0"]).action for _ in range(3)][-1] == "give up"


def test_system_is_tainted_by_failures_within_few_steps() -> None:
    """Not by as many failures over a long run, and no switch or worker ever is."""
    for role, between, last in (
        ("csx-1", TAINTING_STEPS // TAINTING_FAILURES, "shrink"),
        ("csx-1", TAINTING_STEPS, "replace"),
        ("br-1", 1, "replace"),
    ):
        rules = policy()
        actions = []
        for _ in range(TAINTING_FAILURES):
            actions.append(rules.decide(LOST, [role]).action)
            rules.note_steps(between)
        assert actions == ["replace"] * (TAINTING_FAILURES - 1) + [last]


def test_role_that_keeps_failing_is_named() -> None:
    """A switch is replaced for ever, as each finished step gives the restarts back, but not
    without a word; losses of another role say nothing about it."""
    rules = policy()
    told = []
    for role in ("br-1", "wrk-0", "br-1", "br-1", "br-1"):
        told.append("br-1 keeps failing" in rules.decide(LOST, [role]).why)
        rules.note_steps(1)
    assert told == [False, False, False, True, True]


def test_tainted_system_rests_longer_each_time() -> None:
    rules = policy(num_csx=2)
    for rest in (REST_STEPS, 2 * REST_STEPS):
        decisions = [rules.decide(LOST, ["csx-1"]) for _ in range(TAINTING_FAILURES)]
        assert (decisions[-1].action, decisions[-1].num_csx) == ("shrink", 1)
        rules.note_steps(rest - 1)
        assert rules.size_of_next_job() == 1
        rules.note_steps(1)
        assert rules.size_of_next_job() == 2


def test_run_does_not_shrink_below_the_minimum() -> None:
    rules = policy(least=4)
    decisions = [rules.decide(LOST, ["csx-1"]) for _ in range(TAINTING_FAILURES)]
    assert {decision.action for decision in decisions} == {"replace"}
