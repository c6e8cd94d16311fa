"""Roles in one process: message order, stalls, calls to weight holders, one compute thread."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from appliance.local import LocalRoles
from tests.support.errors import raises
from wsc.core.errors import ApplianceDeadlockError, ApplianceRuntimeServerError, DataError
from wsc.core.messages.messages import Envelope, WeightsReleased
from wsc.core.optimizer.spec import OptimizerSpec
from wsc.core.program.program import TensorSpec
from wsc.core.roles.role import Job, Report, RoleContext, Threadless, Waiting

JOB = Job("train", 1, 1)


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

    def install(self, installation: Any) -> None:
        pass


class Holder(Toy):
    """A role that holds named weights."""

    def train_with(self, optimizer: OptimizerSpec) -> None:
        self.held["rule"] = torch.tensor(len(optimizer.rule))

    def fill(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        self.held = {f"{state}.{name}": value for name, value in values.items()}

    def layout(self, states: Collection[str]) -> list[TensorSpec]:
        return [TensorSpec(state, (), "float32") for state in states]

    def save(self, path: Path, offsets: Mapping[str, int], is_background: bool) -> None:
        path.write_text(" ".join(offsets))

    def finish_saving(self) -> None:
        self.held = {}

    def restore(self, path: Path, state: str, strict: bool) -> None:
        self.held = {f"{state}.{path.read_text()}": torch.tensor(strict)}

    def masters(self, names: Sequence[str], state: str = "model") -> list[np.ndarray]:
        return [self.held[f"{state}.{name}"].numpy() for name in names]

    def progress(self) -> None:
        pass

    def steps_held(self) -> frozenset[int]:
        return frozenset()

    def rollback(self, attempt: int, step: int) -> None:
        pass


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


def test_calls_reach_the_named_weight_holder(tmp_path: Path) -> None:
    """A call reaches no other holder; a role without weights refuses it."""
    roles = LocalRoles([Toy("a"), Holder("wgt-0"), Holder("wgt-1")])
    path = tmp_path / "saved"
    roles.fill("wgt-0", {"w": torch.tensor(0)})
    roles.fill("wgt-1", {"w": torch.tensor(1)})
    assert [int(roles.masters(name, ["w"])[0]) for name in ("wgt-0", "wgt-1")] == [0, 1]
    (spec,) = roles.layout("wgt-0", ["model"])
    roles.save("wgt-0", path, {spec.name: 0}, is_background=False)
    roles.restore("wgt-1", path, "model", strict=True)
    assert int(roles.masters("wgt-0", ["w"])[0]) == 0
    assert bool(roles.masters("wgt-1", ["model"])[0])
    roles.fill("wgt-1", {"w.step": torch.tensor(2)}, "optimizer")
    assert int(roles.masters("wgt-1", ["w.step"], "optimizer")[0]) == 2
    with raises(ApplianceRuntimeServerError, "role-failed") as caught:
        roles.fill("a", {})
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


@pytest.mark.parametrize("method", ["begin", "handle", "install"])
def test_failing_role_is_named(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Ray: a WaferStreamError is raised as it is, any other with the role's name."""

    def fail(self: Toy, _: object) -> None:
        raise error

    roles = LocalRoles([Toy("a", at_first=("b",)), Toy("b", expects=1)])
    failing = "b" if method == "handle" else "a"
    monkeypatch.setattr(Toy, method, fail, raising=False)
    installation: Any = None
    act = partial(roles.install, installation) if method == "install" else partial(roles.run, JOB)
    error: Exception = IndexError("no such word")
    with raises(ApplianceRuntimeServerError, "role-failed") as caught:
        act()
    assert (caught.value.where, caught.value.value) == (failing, repr(error))
    error = DataError("the data changed", code="data-changed")
    with raises(DataError, "data-changed"):
        act()
