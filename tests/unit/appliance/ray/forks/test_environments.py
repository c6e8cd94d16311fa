"""A task with an environment of its own is refused where Ray has no agents."""

from typing import Any

import pytest
import ray

from appliance.ray.forks.environments import environments_refused
from tests.support.errors import raises
from tests.support.host.processes import wait_for_end
from waferstream.core.errors import ConfigError


class Counter:
    """An actor of the program's."""


@pytest.mark.parametrize("declared", [ray.remote(wait_for_end), ray.remote(Counter)])
def test_environment_of_one_task_is_refused_without_agents(declared: Any) -> None:
    """The raylet would end half a minute later, and the trained weights be lost."""
    other = declared.options(runtime_env={"env_vars": {"A": "1"}})
    with environments_refused(), raises(ConfigError, "runtime-env-without-agents"):
        other.remote()
