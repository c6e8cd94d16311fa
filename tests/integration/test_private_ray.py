"""A private Ray, seen by another user of the host: no port, no file, no socket, no token."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray._private import worker

from appliance.ray.connection.connection import enter, leave
from appliance.spec import RuntimeSpec
from benchmarks.chaos.leftovers import descendants
from tests.support.host.sockets import listening
from tests.support.host.users import NOBODY, needs_root
from waferstream.core.errors import ConfigError

_STRANGER = """
import json, os, socket, sys
from pathlib import Path

folder, pids, user = json.loads(sys.argv[1])
os.setgroups([])
os.setgid(user)
os.setuid(user)

def tried(action, *words):
    try:
        return bool(action(*words)) or "nothing"
    except OSError as error:
        return error.__class__.__name__

def replace(path):
    os.rename(path, f"{path}.old")
    return True

def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    return True

print(json.dumps({
    "listed": tried(os.listdir, folder),
    "replaced": tried(replace, folder),
    "connected": tried(connect, f"{folder}/sockets/raylet"),
    "environments": sorted({str(tried(Path(f"/proc/{pid}/environ").read_bytes)) for pid in pids}),
}))
"""

_WITHOUT_TOKEN = """
import sys
from ray._raylet import InnerGcsClient
from ray.exceptions import RpcError
try:
    InnerGcsClient.standalone(sys.argv[1], None, 5000)
except Exception as error:
    print(type(error).__name__, error)
else:
    print("entered")
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    """A private Ray with a worker."""
    owns = enter(RuntimeSpec())
    assert owns
    ray.get(ray.remote(lambda: None).remote())
    yield worker._global_node
    leave()


def test_private_ray_listens_on_loopback_alone(node: Any) -> None:
    """Every port of every process that belongs to it, the driver and the workers included."""
    ports = listening([os.getpid(), *descendants(os.getpid())])
    assert len(ports) >= 5  # of the driver, the GCS, a worker, and two of the raylet
    assert {address for address, _ in ports} == {"127.0.0.1"}


@needs_root
def _refusal_in_worker() -> str | None:
    """Submit a task with an environment of its own; return the code of the refusal."""
    other: Any = ray.remote(num_cpus=0)(_refusal_in_worker)
    try:
        other.options(runtime_env={"env_vars": {"A": "1"}}).remote()
    except ConfigError as error:
        return error.code
    return None


def test_environment_of_a_task_is_refused_in_a_worker(node: Any) -> None:
    """As in the driver: the raylet would wait for its agent, and end with all roles."""
    asked: Any = ray.remote(num_cpus=0)(_refusal_in_worker)
    assert ray.get(asked.remote()) == "runtime-env-without-agents"


def test_another_user_finds_no_door(node: Any) -> None:
    """Neither token nor sockets; the folder cannot be replaced."""
    pids = list(descendants(os.getpid()))
    words = json.dumps([node.get_session_dir_path(), pids, NOBODY])
    command = [sys.executable, "-c", _STRANGER, words]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == {
        "listed": "PermissionError",
        "replaced": "PermissionError",
        "connected": "PermissionError",
        "environments": ["PermissionError"],
    }


@pytest.mark.parametrize("token", [None, "a" * 64])
def test_caller_without_the_token_is_refused(node: Any, token: str | None) -> None:
    """Loopback is open to all users of the host; the port asks for the token of this run."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    own = {"RAY_AUTH_MODE": "disabled"} if token is None else {"RAY_AUTH_MODE": "token"}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TOKEN, node.gcs_address],
        env=others | own | ({} if token is None else {"RAY_AUTH_TOKEN": token}),
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert "AuthenticationError" in done.stdout or "Unauthenticated" in done.stdout, done.stdout
