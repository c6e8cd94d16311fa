"""Supervised roles: whatever is lost and when, results and weights are those of a whole run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appliance.coordinator.commands import HashWeights, ReadStory, Run, SaveCheckpoint
from appliance.local import LocalRoles
from appliance.recovery.policy import TAINTING_FAILURES
from appliance.recovery.replicas import ReplicatedRoles
from tests.support.errors import raises
from tests.support.roles.local_machine import sgd
from tests.support.roles.mortal_cluster import (
    LAST_STEP,
    REPLICAS,
    Faults,
    cluster,
    expected,
    jobs,
    local_roles,
    programs,
    replicated_specs,
)
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.core.errors import ApplianceRuntimeServerError, DataError
from waferstream.core.events import Recovered, RecoveryDecided, SystemsReturned
from waferstream.core.optimizer import LossScale, LossScaleRule
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install, ReadLayout, ReadMasters, Restore
from waferstream.core.roles.role import Command

LOSSES = st.dictionaries(st.integers(1, 1000), st.sampled_from(["csx", "br", "wrk"]), max_size=3)


@settings(max_examples=8, deadline=None)
@example({1: "csx-1", 2: "br-0", 3: "wrk-1"})
@example({700: "br"})
@given(LOSSES)
def test_lost_roles_change_no_result(losses: dict[int, str]) -> None:
    """Systems, switches and workers die; weights, losses, norms and clock stay."""
    results, digest, _ = expected()
    faults = Faults(dict(losses))
    running = cluster(faults)
    assert jobs(running) == results
    assert running.do(HashWeights()) == digest
    story = running.do(ReadStory())
    assert sum(isinstance(event, Recovered) for event in story) == faults.hits


@settings(max_examples=4, deadline=None)
@example({100: "act-1", 400: "act-0"})
@given(st.dictionaries(st.integers(1, 1500), st.sampled_from(["act", "csx"]), max_size=3))
def test_lost_activation_servers_change_no_result(losses: dict[int, str]) -> None:
    """What they kept belongs to the step that runs again; nothing else is lost."""
    results, digest, _ = expected(is_cramped=True)
    faults = Faults(dict(losses))
    running = cluster(faults, is_cramped=True)
    assert jobs(running) == results
    assert running.do(HashWeights()) == digest
    story = running.do(ReadStory())
    assert sum(isinstance(event, Recovered) for event in story) == faults.hits


@settings(max_examples=8, deadline=None)
@example({300: "wgt-0", 301: "rpl-1"})
@example({1: "rpl-0", 600: "wgt-1", 900: "wgt-1"})
@given(
    st.dictionaries(st.integers(1, 1000), st.sampled_from(["wgt", "rpl", "csx", "br"]), max_size=3)
)
def test_lost_servers_are_filled_from_replicas(losses: dict[int, str]) -> None:
    """Servers, replicas and others die; weights, losses, norms and clock stay, no step is lost."""
    results, digest, _ = expected()
    faults = Faults(dict(losses))
    running = cluster(faults, has_replicas=True)
    assert jobs(running) == results
    assert running.do(HashWeights()) == digest
    story = running.do(ReadStory())
    assert sum(isinstance(event, Recovered) for event in story) == faults.hits


def fail_once(
    roles: LocalRoles, method: str, *, after: bool, when: Callable[..., bool] = lambda *_: True
) -> list[str]:
    """Let a method of the roles fail at its next call, before or after it has done its part."""
    working, failures = getattr(roles, method), list[str]()

    def call(*args: Any) -> Any:
        fails = not failures and when(*args)
        result = working(*args) if after or not fails else None
        if fails:
            failures.append(method)
            raise ApplianceRuntimeServerError("br-0 died", code="role-died", where="br-0")
        return result

    setattr(roles, method, call)
    return failures


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["rebuild", "do"])
@pytest.mark.parametrize("victim", ["csx-1", "wgt-0"])
def test_recovery_that_fails_half_way_is_begun_again(victim: str, method: str, after: bool) -> None:
    """A new role without program, or without weights, is no survivor."""

    def is_of_recovery(*args: object) -> bool:
        return method == "rebuild" or isinstance(args[1], Install)

    results, digest, _ = expected()
    running = cluster(Faults({300: victim}), has_replicas=True)
    failures = fail_once(local_roles(running), method, after=after, when=is_of_recovery)
    assert jobs(running) == results
    assert running.do(HashWeights()) == digest
    assert failures


def test_survivors_get_the_program_of_fewer_systems_in_the_end() -> None:
    """The first installation of it fails, so that nobody has it."""
    results, digest, _ = expected()
    faults = Faults(dict.fromkeys(range(10, 10 + TAINTING_FAILURES), "csx-2"))
    running = cluster(faults, restarts=9)
    failures = fail_once(
        local_roles(running),
        "do",
        after=False,
        when=lambda names, command: isinstance(command, Install) and len(names) > 1,
    )
    assert jobs(running) == results
    assert running.do(HashWeights()) == digest
    assert failures


def test_server_lost_with_its_replica_is_not_replaced() -> None:
    """Nobody has its weights: the replica dies while the new server is filled from it."""
    running = cluster(Faults({300: "wgt-0"}), has_replicas=True)
    roles: Any = running._roles
    replica = roles._roles._roles._roles["rpl-0"]

    do = replica.do

    def die(command: Command[Any]) -> Any:
        if isinstance(command, ReadLayout):  # what a new server is filled with
            raise ApplianceRuntimeServerError("rpl-0 died", code="role-died", where="rpl-0")
        return do(command)

    replica.do = die
    with raises(ApplianceRuntimeServerError, "weights-lost"):
        running.do(Run(ProgramKind.TRAIN, 1, 4))


def test_postponed_optimizer_state_reaches_a_new_server(tmp_path: Path) -> None:
    """It was to be restored when an optimizer is installed; the new server restores it, too."""
    source_of_state = cluster(Faults(), has_replicas=True)
    source_of_state.do(Run(ProgramKind.TRAIN, 1, 2))
    source_of_state.do(SaveCheckpoint(tmp_path / "file", tuple(CLUSTER_STATES), {}))
    restored: list[str] = []
    inner = ReplicatedRoles(LocalRoles(replicated_specs()), REPLICAS)
    inner.do(None, Install(replace(programs()[2], has_replicas=True)))
    inner.do(["wgt-0"], Restore(tmp_path / "file", "optimizer", True))
    inner.rebuild(replicated_specs(), {"wgt-0"})
    server: Any = inner._roles._roles["wgt-0"]  # type: ignore[attr-defined]
    do = server.do

    def note(command: Command[Any]) -> Any:
        restored.extend([command.state] if isinstance(command, Restore) else [])
        return do(command)

    server.do = note
    inner.do(["wgt-1"], ReadMasters([]))
    assert restored == ["optimizer"]


def test_faults_of_the_property_do_strike() -> None:
    """The messages of a whole run reach beyond the last fault."""
    assert expected()[2] > 1000


def test_finished_steps_do_not_run_again() -> None:
    """Only the step that was not finished by all does; the story names it."""
    running = cluster(Faults({300: "csx-1"}))
    running.do(Run(ProgramKind.TRAIN, 1, 4))
    decision, recovery = running.do(ReadStory())
    assert decision == RecoveryDecided("csx-1 died", ("csx-1",), "replace", "csx-1 lost")
    assert recovery.step == 3
    assert running.do(ReadStory()) == []


def test_weight_server_is_not_replaced() -> None:
    """Its weights are gone; another cluster replays them (test_replay.py)."""
    running = cluster(Faults({300: "wgt"}))
    with raises(ApplianceRuntimeServerError, "role-died"):
        running.do(Run(ProgramKind.TRAIN, 1, 4))
    assert "weights are lost" in running.do(ReadStory())[-1].why


def test_error_of_the_data_is_raised_at_once() -> None:
    """Another try would meet it again."""
    running = cluster(Faults({100: "wrk"}, DataError, "input-changed"))
    with raises(DataError, "input-changed"):
        running.do(Run(ProgramKind.TRAIN, 1, 4))


def test_failure_without_a_lost_role_is_tried_again() -> None:
    """Every role goes on with what it holds."""
    faults = Faults({400: "csx-2"}, code="role-failed")
    running = cluster(faults)
    assert jobs(running) == expected()[0]
    assert running.do(ReadStory())[0].action == "retry"


def test_failures_in_a_row_are_limited() -> None:
    """Without a finished step between them; then the error says so and names the last failure."""
    running = cluster(Faults({1: "csx", 2: "csx", 3: "csx"}), restarts=2)
    with raises(ApplianceRuntimeServerError, "restarts-exhausted") as error:
        running.do(Run(ProgramKind.TRAIN, 1, 4))
    assert str(error.value.where).startswith("csx-")
    assert "max_num_restarts is 2" in running.do(ReadStory())[-1].why


def test_system_that_keeps_failing_is_left_out_until_it_has_rested() -> None:
    """The run goes on with fewer systems to the same bits, and takes it back at a later job."""
    results, digest, _ = expected()
    faults = Faults(dict.fromkeys(range(10, 10 + TAINTING_FAILURES), "csx-2"))
    running = cluster(faults, restarts=5)
    assert jobs(running) == results
    assert running.do(HashWeights()) == digest
    assert any("shrink, csx-2 keeps failing" in str(event) for event in running.do(ReadStory()))
    running.do(Run(ProgramKind.TRAIN, LAST_STEP + 1, 30))
    running.do(Run(ProgramKind.TRAIN, 31, 31))
    assert running.do(ReadStory()) == [SystemsReturned(3, 31)]
    whole = cluster(Faults())
    whole.do(Run(ProgramKind.TRAIN, 1, 31))
    assert running.do(HashWeights()) == whole.do(HashWeights())


def test_cluster_does_not_shrink_below_its_minimum() -> None:
    faults = Faults(dict.fromkeys(range(10, 10 + TAINTING_FAILURES), "csx-2"))
    running = cluster(faults, restarts=5, min_num_csx=3)
    assert jobs(running) == expected()[0]
    assert not any("shrink" in str(event) for event in running.do(ReadStory()))


def test_calls_between_jobs_survive_a_loss() -> None:
    """A role that is found dead when a program is installed is replaced, and has the program."""
    running = cluster(Faults())
    roles: Any = running._roles
    dead = roles._roles._roles["csx-1"]

    def die(command: object) -> None:
        assert isinstance(command, Install)
        raise ApplianceRuntimeServerError("csx-1 died", code="role-died", where="csx-1")

    dead.do = die
    running.do(Install(programs()[2]))
    assert jobs(running) == expected()[0]


@settings(max_examples=3, deadline=None)
@example(400)
@given(st.integers(1, 600))
def test_loss_scale_goes_on_from_the_last_finished_step(message: int) -> None:
    """It doubles in every step, so that a step with another scale would have other bits."""
    rule = LossScaleRule(steps_per_increase=0, minimum=1.0, maximum=2.0**20)
    optimizer = sgd(programs()[0], loss_scale=rule)
    runs = []
    for faults in (Faults(), Faults({message: "csx"})):
        running = cluster(faults, optimizer=optimizer)
        results = running.do(Run(ProgramKind.TRAIN, 1, 5, loss_scale=LossScale(2.0)))
        runs.append((results, running.do(HashWeights())))
    scales = [result.loss_scale.scale for result in runs[0][0] if result.loss_scale is not None]
    assert scales == [4.0, 8.0, 16.0, 32.0, 64.0]
    assert runs[1] == runs[0]
