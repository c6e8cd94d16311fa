"""The fork server and the script that Ray runs to get a worker from it, without Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.ray.forks import fork_server, worker_launcher
from tests.support.host.processes import descendants, wait_for_end

_SCRIPT = """
import json, os, signal, sys
from pathlib import Path
found = {"words": sys.argv[1:], "torch": "torch" in sys.modules, "parent": os.getppid()}
found |= {"setting": os.environ.get("SETTING"), "folder": os.getcwd(), "name": __name__}
found["files"] = len(os.listdir("/proc/self/fd"))
found["ends"] = callable(signal.getsignal(signal.SIGTERM))
found["threads"] = len(os.listdir("/proc/self/task"))
if "ray" in sys.modules:
    from ray import UniqueID
    found["drawn"] = UniqueID.from_random().hex()
Path(sys.argv[1] + ".part").write_text(json.dumps(found))
os.rename(sys.argv[1] + ".part", sys.argv[1])
"""
_WAIT_S = 60


@pytest.fixture(scope="module", autouse=True)
def _stopped() -> Iterator[None]:
    yield
    fork_server.stop()


def _launched(
    folder: Path, address: str, *words: str, launcher: str | None = None, job: str = "01000000"
) -> dict[str, Any]:
    """Start a worker as Ray does; return what the worker has written."""
    script, found = folder / "worker.py", folder / "found.json"
    script.write_text(_SCRIPT)
    python = [sys.executable, worker_launcher.__file__] if launcher is None else launcher.split()
    command = [*python, str(script), str(found), *words]
    environment = os.environ | {worker_launcher.ADDRESS: address, "SETTING": "1", "RAY_JOB_ID": job}
    subprocess.run(command, check=True, env=environment, cwd=folder)
    deadline = time.monotonic() + _WAIT_S
    while not found.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    result: dict[str, Any] = json.loads(found.read_text())
    found.unlink()
    return result


def _waiting_worker(server: fork_server.Server, folder: Path) -> set[int]:
    """Start a worker that ends after a minute; return its process."""
    script, found = folder / "worker.py", folder / "started"
    script.write_text(f"import os, time; os.mkdir({str(found)!r}); time.sleep({_WAIT_S})")
    command = [sys.executable, worker_launcher.__file__, str(script)]
    subprocess.run(command, check=True, env=os.environ | {worker_launcher.ADDRESS: server.address})
    deadline = time.monotonic() + _WAIT_S
    while not found.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    started = descendants(server.process.pid)
    assert started
    return started


@pytest.mark.timeout(120)
def test_worker_is_forked_with_its_words_and_environment(tmp_path: Path) -> None:
    server = fork_server._running()
    context = '--serialized-runtime-env-context={"env_vars": {}}'
    found = _launched(tmp_path, server.address, "--language=PYTHON", context, "--node-id=1")
    assert found.pop("parent") in descendants(server.process.pid)
    assert len(found.pop("drawn")) > 0
    assert found == {
        "words": [str(tmp_path / "found.json"), "--node-id=1"],
        "torch": True,
        "threads": 1,
        "files": 4,  # streams, and that folder
        "ends": False,
        "setting": "1",
        "folder": str(tmp_path),
        "name": "__main__",
    }


_COMMAND = """
import atexit, signal, sys
from appliance.ray.forks import fork_server
held = open(sys.argv[0])
signal.signal(signal.SIGTERM, lambda *_: None)
atexit.register(print, "its last act")
fork_server.start_here()
print(fork_server._current.address, flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(120)
def test_fork_of_a_command_leaves_behind_what_is_its_own(tmp_path: Path) -> None:
    """Files, signals and last acts; what the worker prints is its own, and the server ends with it."""
    script = tmp_path / "command.py"
    script.write_text(_COMMAND)
    environment = os.environ | {"PYTHONPATH": str(fork_server._HERE)}
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as command:
        assert command.stdout is not None
        found = _launched(tmp_path, command.stdout.readline().strip())
        below = descendants(command.pid)
        assert found["parent"] in below
        assert (found["files"], found["ends"], found["torch"]) == (4, False, True)
        printed, _ = command.communicate("")
    assert printed.split("\n") == ["its last act", ""]
    assert wait_for_end(below) == set()


@pytest.mark.timeout(120)
def test_workers_of_an_instance_share_a_parent_and_no_random_numbers(tmp_path: Path) -> None:
    """Ray keeps the job that it was imported with: another one gets a process of its own."""
    server = fork_server._running()
    first, second = (_launched(tmp_path, server.address) for _ in range(2))
    assert first["parent"] == second["parent"] != server.process.pid
    assert first["drawn"] != second["drawn"]
    other = _launched(tmp_path, server.address, job="02000000")
    assert other["parent"] != first["parent"]
    assert wait_for_end({first["parent"]}) == set()


@pytest.mark.timeout(120)
def test_workers_that_still_start_are_ended(tmp_path: Path) -> None:
    """Ray does not know them, and the server stays for the next instance."""
    server = fork_server._running()
    started = _waiting_worker(server, tmp_path)
    fork_server.end_workers()
    assert wait_for_end(started) == set()
    assert server.process.poll() is None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("has_server", [True, False])
def test_worker_that_starts_ends_after_raylet_and_server(tmp_path: Path, has_server: bool) -> None:
    """Somebody kills all that he knows; Ray's worker would look for the raylet for half a minute."""
    script, found = tmp_path / "worker.py", tmp_path / "pid"
    script.write_text(
        f"import os, pathlib, time\npart = pathlib.Path({str(found)!r} + '.part')\n"
        f"part.write_text(str(os.getpid()))\npart.rename({str(found)!r})\ntime.sleep({_WAIT_S})"
    )
    own = tmp_path / "setup_worker.py"
    own.write_text("import sys; sys.argv.pop(0); exec(open(sys.argv[0]).read())")
    server = fork_server._running()
    address = server.address if has_server else "waferstream-no-such-server"
    words = [sys.executable, worker_launcher.__file__, str(script)]
    raylet = ["sh", "-c", 'RAY_RAYLET_PID=$$ "$@" & read _', "raylet", *words]
    environment = os.environ | {worker_launcher.ADDRESS: f"{address} {own}"}
    with subprocess.Popen(raylet, env=environment, stdin=subprocess.PIPE) as parent:
        deadline = time.monotonic() + _WAIT_S
        while not found.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        server.process.kill()
        parent.kill()
    assert wait_for_end({int(found.read_text())}, timeout_s=10) == set()


def test_server_stays_until_settings_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that load nothing take the place of real ones here."""

    def start_idle() -> fork_server.Server:
        process = subprocess.Popen(["sleep", str(_WAIT_S)], stdin=subprocess.PIPE)
        return fork_server.Server(process, "", fork_server._settings())

    monkeypatch.setattr(fork_server, "start_server", start_idle)
    monkeypatch.setattr(fork_server, "_current", None)
    first = fork_server._running()
    assert fork_server._running() is first
    monkeypatch.setenv("OMP_PLACES", "cores")
    second = fork_server._running()
    assert second is not first
    assert first.process.poll() is not None
    fork_server.stop()
    assert second.process.poll() is not None


@pytest.mark.parametrize(
    "word", ['--serialized-runtime-env-context={"env_vars": {"A": "1"}}', "--language=JAVA"]
)
def test_prepared_worker_is_left_to_ray(word: str) -> None:
    assert worker_launcher._request(["worker.py", word]) is None


def test_launcher_runs_script_of_ray_without_server(tmp_path: Path) -> None:
    own = tmp_path / "setup_worker.py"
    own.write_text("import sys; sys.argv.pop(0); exec(open(sys.argv[0]).read())")
    found = _launched(tmp_path, f"waferstream-no-such-server {own}")
    assert found["torch"] is False


@pytest.mark.timeout(120)
def test_executable_of_a_server_forks_a_worker(tmp_path: Path) -> None:
    """As Ray runs it on a joined host, where no variable names the server."""
    server = fork_server._running()
    found = _launched(tmp_path, "", "--node-id=1", launcher=server.executable)
    assert found["words"] == [str(tmp_path / "found.json"), "--node-id=1"]
    assert found["parent"] in descendants(server.process.pid)


def test_executable_of_an_ended_server_is_python(tmp_path: Path) -> None:
    ended = f"{sys.executable} -S {worker_launcher.__file__} {worker_launcher.SERVER_WORD}none"
    found = _launched(tmp_path, "", "--node-id=1", launcher=ended)
    assert found["words"] == [str(tmp_path / "found.json"), "--node-id=1"]
    assert found["torch"] is False


@pytest.mark.timeout(120)
def test_killed_process_leaves_nothing_of_its_ray(tmp_path: Path) -> None:
    """Its end closes the pipe: workers end, and what has a title of Ray's in the last groups told."""
    server = fork_server._running()
    titled = ["bash", "-c", 'exec -a ray::Agent sleep "$0"', str(_WAIT_S)]
    commands = [titled, titled, ["sleep", str(_WAIT_S)]]
    agent, forgotten, other = [subprocess.Popen(words, process_group=0) for words in commands]
    worker = _waiting_worker(server, tmp_path)
    fork_server.tell_groups([forgotten.pid])
    fork_server.tell_groups([agent.pid, other.pid])
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert server.process.wait(_WAIT_S) == 0
    assert agent.wait(_WAIT_S) == -signal.SIGKILL
    assert wait_for_end(worker) == set()
    assert forgotten.poll() is None
    assert other.poll() is None
    for process in (forgotten, other):
        process.kill()
        process.wait()


def test_end_of_a_killed_server_is_silent() -> None:
    """Also if it could not be told of Ray's groups any more."""
    with fork_server.workers_forked(Path("script")) as server:
        server.kill()
        server.wait()
    fork_server.tell_groups([1])
    fork_server.stop()
