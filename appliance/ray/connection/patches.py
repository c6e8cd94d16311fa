"""The changes of Ray's private modules with which a private instance starts, all in one place.

    parameter.RayParams                  loopback alone, a session name of ours, no monitors
    services.ConsolePopen                Ray's processes have groups of their own; no agents
    worker._maybe_modify_runtime_env     noted: a runtime environment needs the agents
    services.start_api_server            no dashboard, and no process for usage statistics
    ray_constants.SETUP_WORKER_FILENAME  workers are forked by a server that has loaded the code
    random, in each module of Ray        a generator that is not the program's
    RayLog, in C++                       no handler of signals

They save half of the time of a start, keep other hosts from the ports of Ray, and let it outlive a
signal to the group of the user's process. None is needed to run: with ``runtime.fast_start: false``
Ray starts by its public interface, and so it does where a release of Ray lacks one of the names.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from appliance.ray.forks.worker_launcher import NO_AGENTS

NAMES = (
    ("ray._private.parameter", "RayParams"),
    ("ray._private.services", "ConsolePopen"),
    ("ray._private.worker", "_maybe_modify_runtime_env"),
    ("ray._private.services", "start_api_server"),
    ("ray._private.ray_constants", "SETUP_WORKER_FILENAME"),
)
"""Modules of Ray and what is changed in them."""

_PORTS = (
    "METRICS_AGENT_PORT_NAME",
    "METRICS_EXPORT_PORT_NAME",
    "DASHBOARD_AGENT_LISTEN_PORT_NAME",
    "RUNTIME_ENV_AGENT_PORT_NAME",
)
_USED = tuple(("ray._raylet", name) for name in ("persist_port", *_PORTS))
"""With what an agent tells its raylet where it listens."""

_NO_PORT = 1

_AGENT_WORDS = ("--dashboard_agent_command=", "--runtime_env_agent_command=")
_PLACEHOLDER = 'sh -c "exec tail --pid=$RAY_RAYLET_PID -f /dev/null"'
"""What a raylet runs in place of an agent, as it ends with its agents: it ends with the raylet."""

_HAS_HANDLER = "_ZN3ray6RayLog36is_failure_signal_handler_installed_E"
"""Ray's variable, as the linker names it."""

_NO_DASHBOARD = (None, None)
"""Address and process of the dashboard."""

_RAYS_GENERATOR = random.Random()


def missing_names() -> list[str]:
    """Return the names that this release of Ray has not."""
    return [f"{module}.{name}" for module, name in (*NAMES, *_USED) if not _has(module, name)]


@contextmanager
def patched(
    parameters: Mapping[str, object],
    process_started: Callable[[Any], None],
    launcher: Path,
    *,
    has_agents: bool = False,
) -> Iterator[Callable[[], bool]]:
    """Let an instance that starts in the block start as ours do.

    Args:
        parameters: Values of ``RayParams`` that win over those of ``ray.init``.
        process_started: Called with each process that Ray starts.
        launcher: The script that starts a worker process, in place of Ray's.
        has_agents: Whether the agents of the raylet start, a second of processor time each. They
            also do where the environment of the program states a runtime environment.

    Yields:
        What tells, once the instance has started, whether it lacks the agents.
    """
    params, popen, modified, _, _ = (getattr(import_module(module), name) for module, name in NAMES)

    needs_agents = has_agents

    def noted(*given: Any) -> Any:
        nonlocal needs_agents
        environment = modified(*given)
        needs_agents = needs_agents or bool(environment)
        return environment

    def start(command: list[str], **options: Any) -> Any:
        if not needs_agents:
            command = _without_agents(command)
            options["env"] = {**options.get("env", os.environ), NO_AGENTS: "1"}
        process = popen(command, process_group=0, **options)
        process_started(process)
        return process

    changed = (
        lambda **given: params(**given | parameters),
        start,
        noted,
        lambda *_, **__: _NO_DASHBOARD,
        str(launcher),
    )
    with ExitStack() as stack:
        for (module, name), value in zip(NAMES, changed, strict=True):
            stack.enter_context(mock.patch.object(import_module(module), name, value))
        yield lambda: not needs_agents


def workers_script() -> Path:
    """Return the script with which Ray itself starts a worker process."""
    constants = import_module("ray._private.ray_constants")
    return Path(str(constants.__file__)).parent / "workers" / str(constants.SETUP_WORKER_FILENAME)


def give_ray_a_generator() -> None:
    """Let the loaded modules of Ray draw random numbers from a generator of their own.

    The global one belongs to the user's program: a step that is traced while Ray starts would seem
    to draw from it.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("ray.") and getattr(module, "random", None) is random:
            module.random = _RAYS_GENERATOR  # type: ignore[attr-defined]


def keep_handlers() -> None:
    """Let Ray believe that its handler of signals is there, so that it takes nobody's place.

    It would print a stack on SIGTERM, and be set in the middle of a start.
    """
    library = ctypes.CDLL(import_module("ray._raylet").__file__)
    with suppress(ValueError):  # a release that has no such name
        ctypes.c_bool.in_dll(library, _HAS_HANDLER).value = True


def _without_agents(command: list[str]) -> list[str]:
    """Return the command of a process of Ray; if that is a raylet, with placeholders for agents.

    The agents prepare runtime environments and report metrics. The raylet waits until they have
    said where they listen, and connects only when it needs one.
    """
    if not any(word.startswith(_AGENT_WORDS) for word in command):
        return command
    raylet = import_module("ray._raylet")
    values = dict(word.partition("=")[::2] for word in command)
    for name in _PORTS:
        name_of_file = getattr(raylet, name)
        raylet.persist_port(values["--session_dir"], values["--node_id"], name_of_file, _NO_PORT)
    return [
        f"{word.partition('=')[0]}={_PLACEHOLDER}" if word.startswith(_AGENT_WORDS) else word
        for word in command
    ]


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False
