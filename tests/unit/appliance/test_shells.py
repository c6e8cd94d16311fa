"""Shells of roles: each is what it holds, for a caller and for ``isinstance``."""

import inspect

import pytest

from appliance.coordinator.roles import Roles
from appliance.faults.shell import Faulty, FaultyJob
from appliance.role_log import Logged, LoggedJob, LoggedRoles
from waferstream.core.roles.role import Role, RunningJob


@pytest.mark.parametrize(
    ("shell", "protocol"),
    [
        (Faulty, Role),
        (FaultyJob, RunningJob),
        (Logged, Role),
        (LoggedJob, RunningJob),
        (LoggedRoles, Roles),
    ],
)
def test_shell_has_every_method_of_what_it_holds(shell: type, protocol: type) -> None:
    """By itself: from Python 3.12 on, ``isinstance`` does not ask ``__getattr__``."""
    methods = {name for name, _ in inspect.getmembers(protocol, inspect.isfunction)}
    assert {name for name in methods if not name.startswith("_")} <= set(dir(shell))
