"""Joining a Ray cluster that does not exist fails fast; leaving one leaves nothing."""

import platform
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import ray
from ray._private import services, worker
from ray._private.utils import check_version_info

from appliance.ray.connection import address, connection, greeting, patches
from appliance.ray.connection.connection import enter, entering_early, leave
from appliance.spec import RuntimeSpec
from tests.support.errors import raises
from waferstream.core.errors import ClusterJobInitError
from waferstream.host.interrupts import ended_within

SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""An empty SETTINGS frame, with which every HTTP/2 server begins (RFC 9113, section 3.4)."""


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every failure must come before ray.init, which by itself retries for more than a minute."""

    def called(runtime: RuntimeSpec) -> None:
        raise AssertionError(f"ray.init was called for {runtime.address}")

    monkeypatch.setattr(connection, "_init", called)


def test_closed_ray_address_fails_fast() -> None:
    """Nothing listens at a closed port."""
    with socket.socket() as taken:  # bound but not listening: nobody else can answer there
        taken.bind(("127.0.0.1", 0))
        with raises(ClusterJobInitError, "ray-not-answering"):
            enter(RuntimeSpec(address=f"127.0.0.1:{taken.getsockname()[1]}"))


@pytest.mark.parametrize(
    ("noted", "code"), [("127.0.0.1:9", "ray-not-answering"), (None, "ray-not-running")]
)
def test_auto_address_of_a_dead_instance_fails_fast(
    monkeypatch: pytest.MonkeyPatch, noted: str | None, code: str
) -> None:
    """`auto` finds the address that a killed instance has left, or nothing."""

    def latest(*_: object, **__: object) -> str:
        if noted is None:
            raise ConnectionError("Could not find any running Ray instance.")
        return noted

    monkeypatch.setattr(services, "get_ray_address_from_environment", latest)
    with raises(ClusterJobInitError, code) as caught:
        enter(RuntimeSpec(address="auto"))
    assert caught.value.remedy


def test_port_of_another_service_is_not_ray() -> None:
    """A web server is not taken for Ray, which would wait for it for many minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = threading.Thread(target=refuse_politely, args=(server,))
        answer.start()
        with raises(ClusterJobInitError, "ray-not-answering") as caught:
            enter(RuntimeSpec(address=f"127.0.0.1:{server.getsockname()[1]}"))
        assert caught.value.value == greeting.NOT_RAY
        answer.join()


def refuse_politely(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        peer.recv(1024)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_another_grpc_server_is_not_ray() -> None:
    """It greets like Ray, but does not know the first call of ray.init."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with raises(ClusterJobInitError, "ray-not-answering") as caught:
        enter(RuntimeSpec(address=f"127.0.0.1:{port}"))
    assert caught.value.value == greeting.NOT_RAY
    server.stop(None).wait()


def test_silent_grpc_server_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that hangs, or something else that speaks HTTP/2, gets one request."""
    monkeypatch.setattr(address, "_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = threading.Thread(target=greet_and_fall_silent, args=(server,))
        answer.start()
        with raises(ClusterJobInitError, "ray-not-joined"):
            enter(RuntimeSpec(address=f"127.0.0.1:{server.getsockname()[1]}"))
        answer.join()


def test_head_that_is_stopped_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel still accepts connections."""
    monkeypatch.setattr(address, "_SILENT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        answer = threading.Thread(target=greet_and_fall_silent, args=(server, 1))
        answer.start()
        assert address.answers(place)
        answer.join()
        assert not address.answers(place)
    assert not address.answers(place)


def test_cluster_of_another_python_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the versions on both sides, in Ray's words."""

    def compare(_: str) -> None:
        check_version_info({"ray_version": "2.1", "python_version": "3.8.7"}, "10.0.0.9")

    monkeypatch.setattr(connection, "check_address", lambda _: None)
    monkeypatch.setattr(connection, "_init", compare)
    with raises(ClusterJobInitError, "ray-of-another-version") as caught:
        enter(RuntimeSpec(address="10.0.0.1:6379"))
    assert caught.value.rule == "cluster was started with: Ray: 2.1 Python: 3.8.7"
    assert f"Python: {platform.python_version()}" in str(caught.value.value)
    assert caught.value.remedy


def test_ray_that_does_not_start_in_time_is_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it was started early: nobody sees the first failure, nor the thread's."""

    def start(_: str) -> None:
        raise Exception("The current node timed out during startup.")  # as Ray does

    monkeypatch.setattr(connection, "_init", start)
    runtime = RuntimeSpec()
    with entering_early(runtime), raises(ClusterJobInitError, "ray-not-started") as caught:
        enter(runtime)
    assert caught.value.value == "The current node timed out during startup."
    assert caught.value.remedy


def greet_and_fall_silent(server: socket.socket, times: int = 2) -> None:
    """To the greeting of ``enter`` and to Ray's client, until both have gone."""
    for _ in range(times):
        peer, _ = server.accept()
        with peer:
            peer.sendall(SETTINGS)
            while peer.recv(1024):
                pass


@pytest.mark.parametrize("address", ["", "nowhere", "ray://head:10001x", "head:", ":6379"])
def test_malformed_ray_address_is_refused(address: str) -> None:
    """An address needs a host and a port; the network is not used."""
    with raises(ClusterJobInitError, "ray-address-malformed"):
        enter(RuntimeSpec(address=address))


def _titled(title: str) -> subprocess.Popen[bytes]:
    """Start a process with a title of its own, as the leader of a group."""
    return subprocess.Popen(["bash", "-c", f"exec -a {title} sleep 60"], process_group=0)


def test_agents_of_a_raylet_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's processes in its group are killed; the same titles elsewhere are not ours."""
    with _titled("ray::Agent") as agent, _titled("ray::Other") as other:
        raylet = SimpleNamespace(process=agent)
        node = SimpleNamespace(all_processes={"raylet": [raylet]})
        monkeypatch.setattr(worker, "_global_node", node)
        monkeypatch.setattr(ray, "shutdown", lambda: None)
        while not Path(f"/proc/{agent.pid}/cmdline").read_bytes().startswith(b"ray::"):
            time.sleep(0.01)
        leave()
        assert agent.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


def test_processes_of_a_start_that_failed_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray forgets those that it has started before, and their agents."""
    with _titled("gcs_server") as server:
        monkeypatch.setattr(connection, "_started", [server])
        monkeypatch.setattr(worker, "_global_node", None)
        leave()
        assert server.wait(10) == -signal.SIGKILL
    assert connection._started == []


def test_ray_draws_from_a_generator_of_its_own() -> None:
    """The start of Ray, in its own thread, leaves the global one to a step that is traced."""
    patches.give_ray_a_generator()
    loaded = [module for name, module in sys.modules.items() if name.startswith("ray.")]
    assert ray._raylet in loaded
    assert not [module for module in loaded if getattr(module, "random", None) is random]
    before = random.getstate()
    assert vars(ray._raylet)["random"].getrandbits(8) < 256
    assert random.getstate() == before


@pytest.mark.parametrize("waits", [True, False])
def test_signals_leave_nothing_of_a_ray_that_starts(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Ctrl-C while the program waits for Ray or does something else, and again and again."""
    is_asked, events = threading.Event(), list[str]()

    def start(_address: str) -> None:
        is_asked.wait(10)
        events.append("started")

    def send_again() -> None:
        """As from a terminal, until the program has to wait for the start."""
        for _ in range(3):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.05)
        is_asked.set()

    def work() -> None:
        with ended_within(60), entering_early(RuntimeSpec()):
            threading.Thread(target=send_again).start()
            if waits:
                enter(RuntimeSpec())
            threading.Event().wait(10)

    monkeypatch.setattr(connection, "_init", start)
    monkeypatch.setattr(connection, "leave", lambda: events.append("left"))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["started", "left"]
    assert connection._early is None
