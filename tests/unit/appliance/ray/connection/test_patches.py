"""The changes of Ray's private modules: they fit this release, end with the block, or are left."""

import logging
import subprocess
import sys
import time
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from appliance.ray.connection import connection, patches
from appliance.spec import RuntimeSpec
from tests.support.host.processes import descendants, wait_for_end

_NODE = 28 * "ab"

_PARENT = """
import os, shlex, subprocess, sys
environment = os.environ | {"RAY_RAYLET_PID": str(os.getpid())}
subprocess.run(shlex.split(sys.argv[1]), env=environment)
"""

NEWS = """
Ray has changed what appliance/ray/connection/patches.py changes in it. Find the new name in Ray's
source, and the same effect, or take the entry out of NAMES: with runtime.fast_start: false, and
where a name is missing, Ray starts by its public interface, in twice the time.
"""


def test_this_release_of_ray_has_every_name() -> None:
    assert patches.missing_names() == [], NEWS


def test_this_release_of_ray_takes_what_is_given() -> None:
    from ray._private import parameter, services

    given = {"no_monitor", "include_log_monitor", "node_ip_address", "session_name"}
    assert given <= signature(parameter.RayParams).parameters.keys(), NEWS
    assert "process_group" in signature(services.ConsolePopen.__bases__[0]).parameters, NEWS
    assert patches.workers_script().is_file(), NEWS


def test_changes_end_with_the_block() -> None:
    def now() -> list[object]:
        return [getattr(import_module(module), name) for module, name in patches.NAMES]

    before = now()
    with patches.patched({}, lambda _: None, Path("launcher")):
        assert all(a is not b for a, b in zip(now(), before, strict=True))
    assert now() == before


def test_raylet_without_agents_finds_their_ports_and_outlives_no_placeholder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a runtime environment of the program's, or on demand, the agents start."""
    from ray._private import services, worker

    words = [
        f"--session_dir={tmp_path}",
        f"--node_id={_NODE}",
        "--runtime_env_agent_command=agent x",
    ]
    started: list[list[str]] = []
    monkeypatch.setattr(services, "ConsolePopen", lambda words, **_: started.append(words))
    for has_agents, environment in ((False, {}), (True, {}), (False, {"pip": ["x"]})):
        monkeypatch.setattr(worker, "_maybe_modify_runtime_env", lambda *_, e=environment: e)
        with patches.patched({}, lambda _: None, Path("launcher"), has_agents=has_agents):
            worker._maybe_modify_runtime_env(None, False)
            services.ConsolePopen(words)
    without, *others = started
    assert others == [words, words]
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}_port_{_NODE}"
        for name in (
            "metrics_agent",
            "metrics_export",
            "dashboard_agent_listen",
            "runtime_env_agent",
        )
    }
    command = without[-1].removeprefix("--runtime_env_agent_command=")
    with subprocess.Popen([sys.executable, "-c", _PARENT, command]) as parent:
        while not (placeholders := descendants(parent.pid)):
            time.sleep(0.02)
        parent.kill()
    assert wait_for_end(placeholders) == set()


_INSTALL = """
import ctypes, os, signal
from ray import _raylet
from appliance.ray.connection import patches
patches.keep_handlers()
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
ctypes.CDLL(_raylet.__file__)._ZN3ray6RayLog27InstallFailureSignalHandlerEPKcb(None, False)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_ray_installs_no_handler_of_signals() -> None:
    """As it does when a process connects, at the end of a start."""
    command = [sys.executable, "-c", _INSTALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "handled\n", "")


def test_a_release_without_a_name_starts_plainly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says so."""
    names = (*patches.NAMES, ("ray._private.services", "gone"), ("ray._private.gone", "name"))
    monkeypatch.setattr(patches, "NAMES", names)
    assert patches.missing_names() == ["ray._private.services.gone", "ray._private.gone.name"]
    with caplog.at_level(logging.WARNING), connection._fast_start(RuntimeSpec()):
        pass
    assert "starts slowly" in caplog.text
