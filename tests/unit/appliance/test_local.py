"""Roles in one process: message order, stalls, commands, one compute thread."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

from appliance.local import LocalRoles
from tests.support.errors import raises
from waferstream.core.errors import ApplianceDeadlockError, ApplianceRuntimeServerError, DataError
from waferstream.core.messages.messages import Envelope, WeightsReleased
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Fill, ReadMasters
from waferstream.core.roles.role import (
    Command,
    Job,
    Report,
    RoleContext,
    Threadless,
    Waiting,
    not_taken,
)

JOB = Job(ProgramKind.TRAIN, 1, 1)


@dataclass
class Toy(Threadless):
    """A role that sends numbered messages at the start, and forwards others along a route.

    The number of a message is its step.
    """

    name: str
    at_first: tuple[str, ...] = ()
    route: dict[int, str] = field(default_factory=dict)
    expects: int = 0
    received: list[tuple[str, int]] = field(default_factory=list)
    held: dict[str, torch.Tensor] = field(default_factory=dict)
    threads: int = 0

    def build(self, context: RoleContext) -> "Toy":
        return self

    def begin(self, job: Job) -> "Toy":
        return self

    def start(self) -> Iterator[Envelope]:
        self.threads = torch.get_num_threads()
        for number, target in enumerate(self.at_first):
            yield Envelope(self.name, target, WeightsReleased(number, 0, 0))

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        self.received.append((envelope.source, envelope.message.step))
        target = self.route.get(envelope.message.step)
        if target is not None:
            yield Envelope(self.name, target, envelope.message)

    @property
    def finished(self) -> bool:
        return len(self.received) >= self.expects

    def report(self) -> Report:
        return Report(self.name)

    def waits_for(self) -> Waiting:
        return Waiting("toys", ("c",))

    def do(self, command: Command[Any]) -> Any:
        raise not_taken(self.name, command)


class Holder(Toy):
    """A role that holds named weights."""

    def do(self, command: Command[Any]) -> Any:
        match command:
            case Fill(values, state):
                self.held = {f"{state}.{name}": value for name, value in values.items()}
            case ReadMasters(names, state):
                return [self.held[f"{state}.{name}"].numpy() for name in names]
        return None


def test_oldest_message_is_handled_first() -> None:
    """So every run handles messages in the same order."""
    a = Toy("a", at_first=("c", "b", "c"))
    b = Toy("b", at_first=("c",), route={1: "c"})
    c = Toy("c", expects=4)
    reports = LocalRoles([a, b, c]).run(JOB)
    assert c.received == [("a", 0), ("a", 2), ("b", 0), ("b", 1)]
    assert [report.role for report in reports] == ["a", "b", "c"]


def test_stall_names_the_waiting_roles() -> None:
    """No message is left, and some roles are not finished: waiting cannot help."""
    roles = LocalRoles([Toy("a", at_first=("b",)), Toy("b", expects=2), Toy("c", expects=1)])
    with raises(ApplianceDeadlockError, "roles-stalled") as caught:
        roles.run(JOB)
    assert caught.value.value == "b waits for c (toys); c waits for c (toys)"


def test_commands_reach_the_named_roles() -> None:
    """A command reaches no other role; one without a part in it refuses it."""
    roles = LocalRoles([Toy("a"), Holder("wgt-0"), Holder("wgt-1")])
    for index in range(2):
        roles.do([f"wgt-{index}"], Fill({"w": torch.tensor(index)}))
    masters = roles.do(["wgt-0", "wgt-1"], ReadMasters(["w"]))
    assert {name: int(value) for name, (value,) in masters.items()} == {"wgt-0": 0, "wgt-1": 1}
    with raises(ApplianceRuntimeServerError, "role-failed") as caught:
        roles.do(None, Fill({}))
    assert caught.value.where == "a"


def test_local_roles_compute_on_one_thread() -> None:
    """The thread count of the user's process is restored afterwards."""
    toy = Toy("a")
    torch.set_num_threads(2)
    try:
        LocalRoles([toy]).run(JOB)
        assert toy.threads == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_local_roles_shut_down_twice() -> None:
    """On success, failure and Ctrl-C alike."""
    roles = LocalRoles([Toy("a")])
    roles.shutdown()
    roles.shutdown()


@pytest.mark.parametrize("method", ["begin", "handle", "do"])
def test_failing_role_is_named(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Ray: a WaferStreamError is raised as it is, any other with the role's name."""

    def fail(self: Toy, _: object) -> None:
        raise error

    roles = LocalRoles([Toy("a", at_first=("b",)), Toy("b", expects=1)])
    failing = "b" if method == "handle" else "a"
    monkeypatch.setattr(Toy, method, fail, raising=False)
    act = partial(roles.do, None, Fill({})) if method == "do" else partial(roles.run, JOB)
    error: Exception = IndexError("no such word")
    with raises(ApplianceRuntimeServerError, "role-failed") as caught:
        act()
    assert (caught.value.where, caught.value.value) == (failing, repr(error))
    error = DataError("the data changed", code="data-changed")
    with raises(DataError, "data-changed"):
        act()
