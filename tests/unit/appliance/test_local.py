"""Roles in one process: mail in order, a stall that is noticed, one compute thread."""

from dataclasses import dataclass, field
from functools import partial

import pytest
import torch

from appliance.local import LocalRoles
from wsc.core.errors import ApplianceDeadlockError, ApplianceRuntimeServerError, DataError
from wsc.core.messages import Envelope
from wsc.core.role import Job, Report

JOB = Job("train", 1, 1)


@dataclass
class Toy:
    """Sends what it is told to at the start, and forwards what it receives along a route."""

    name: str
    at_first: tuple[str, ...] = ()
    route: dict[int, str] = field(default_factory=dict)
    expects: int = 0
    received: list[tuple[str, int]] = field(default_factory=list)
    threads: int = 0

    def build(self, context):
        return self

    def begin(self, job):
        return self

    def start(self):
        self.threads = torch.get_num_threads()
        for number, target in enumerate(self.at_first):
            yield Envelope(self.name, target, number)

    def handle(self, envelope):
        self.received.append((envelope.source, envelope.message))
        target = self.route.get(envelope.message)
        if target is not None:
            yield Envelope(self.name, target, envelope.message)

    @property
    def finished(self):
        return len(self.received) >= self.expects

    def report(self):
        return Report(self.name)

    def install(self, installation):
        pass


class Holder(Toy):
    """Holds weights that are called by their names."""

    def fill(self, values):
        self.held = dict(values)

    def save(self, path, state):
        path.write_text(state)

    def restore(self, path, state, strict):
        self.held = {path.read_text(): strict}

    def masters(self, names):
        return [self.held[name] for name in names]


def test_the_oldest_message_is_handled_first():
    """So a run is the same every time."""
    a = Toy("a", at_first=("c", "b", "c"))
    b = Toy("b", at_first=("c",), route={1: "c"})
    c = Toy("c", expects=4)
    reports = LocalRoles([a, b, c]).run(JOB)
    assert c.received == [("a", 0), ("a", 2), ("b", 0), ("b", 1)]
    assert [report.role for report in reports] == ["a", "b", "c"]


def test_a_stall_names_who_waits():
    """No message is left, and some are not finished: that cannot get better by waiting."""
    roles = LocalRoles([Toy("a", at_first=("b",)), Toy("b", expects=2), Toy("c", expects=1)])
    with pytest.raises(ApplianceDeadlockError, match="some roles wait") as caught:
        roles.run(JOB)
    assert caught.value.value == "b, c"


def test_calls_reach_the_weight_holder_they_name(tmp_path):
    """Not another holder, and no role that holds no weights."""
    roles = LocalRoles([Toy("a"), Holder("wgt-0"), Holder("wgt-1")])
    path = tmp_path / "saved"
    roles.fill("wgt-0", {"w": 0})
    roles.fill("wgt-1", {"w": 1})
    assert (roles.masters("wgt-0", ["w"]), roles.masters("wgt-1", ["w"])) == ([0], [1])
    roles.save("wgt-0", path, "model")
    roles.restore("wgt-1", path, "model", strict=True)
    assert (roles.masters("wgt-0", ["w"]), roles.masters("wgt-1", ["model"])) == ([0], [True])
    with pytest.raises(ApplianceRuntimeServerError) as caught:
        roles.fill("a", {})
    assert (caught.value.code, caught.value.where) == ("role-failed", "a")


def test_roles_compute_on_one_thread():
    """Whatever the user's process is set to, before, during and after."""
    toy = Toy("a")
    torch.set_num_threads(2)
    try:
        LocalRoles([toy]).run(JOB)
        assert toy.threads == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_shutdown_may_be_called_twice():
    """On success, failure and Ctrl-C alike."""
    roles = LocalRoles([Toy("a")])
    roles.shutdown()
    roles.shutdown()


@pytest.mark.parametrize("method", ["begin", "handle", "install"])
def test_a_room_that_fails_is_named(method, monkeypatch):
    """As on Ray: an error of ours comes as it is, any other with the name of the role."""

    def fail(self, _):
        raise error

    roles = LocalRoles([Toy("a", at_first=("b",)), Toy("b", expects=1)])
    failing = "b" if method == "handle" else "a"
    monkeypatch.setattr(Toy, method, fail, raising=False)
    act = partial(roles.install, None) if method == "install" else partial(roles.run, JOB)
    error = IndexError("no such word")
    with pytest.raises(ApplianceRuntimeServerError, match="failed") as caught:
        act()
    assert caught.value.where == failing
    assert "no such word" in str(caught.value)
    error = DataError("the data changed")
    with pytest.raises(DataError, match="the data changed"):
        act()
