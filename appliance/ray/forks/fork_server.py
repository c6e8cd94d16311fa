"""A process that has loaded the code of all roles, and forks a worker of Ray in milliseconds.

A worker that Ray starts by itself imports Ray twice, then torch and the project: four seconds of
processor time for each role. The fork server imports all but Ray once, while Ray itself starts, or
is a fork of a command that has imported it, and stays for all clusters of the process. Ray reads
its job and its raylet from the environment when it is imported: so the server forks a process for
each instance of Ray, by the first request from there, and that one imports Ray and forks the
workers. Both have one thread and compute nothing, so that a fork copies no lock and no state of a
random generator. On a joined Ray each host with several roles has a fork server of its own
(appliance.ray.forks.host_forks).
"""

from __future__ import annotations

import atexit
import gc
import json
import logging
import os
import secrets
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from appliance.ray.forks.leftovers import end_below, end_groups
from appliance.ray.forks.worker import become_worker, set_environment
from appliance.ray.forks.worker_launcher import ADDRESS, RAYLET, SERVER_WORD, send

LAUNCHER = Path(__file__).with_name("worker_launcher.py")
"""The script that Ray runs in place of its own to start a worker."""

_HERE = Path(__file__).parents[3]
_SETTINGS = ("PYTHON", "TORCH", "OMP_", "MKL_", "LD_", "CUDA_", "GRPC_")
"""Environment variables that imports read: a server that was started with others is outdated."""

_SET_BY_RAY = "PYTHONBREAKPOINT"  # when it is entered; the server serves the next instance, too

_ROLES = ("appliance.coordinator.coordinator", "memoryx.server", "swarmx.switch", "csnode.node")
_FRONT_END = ("cstorch", "waferstream.workload.data")  # roles unpickle parts of an installation

_OF_RAY = ("filelock", "jsonschema", "msgpack", "requests")  # what Ray itself imports of others

PRELOADED = (*_ROLES, *_FRONT_END, *_OF_RAY)
"""Modules that the fork server imports."""

_WITH_RAY = ("appliance.ray.starter",)
"""Modules that the process of an instance imports: with them all that actors need."""

_WHERE_INSTALLED = (
    "ray._common.pydantic_compat",
    "ray._common.usage.usage_lib",
    "starlette.datastructures",
    "ray._private.arrow_serialization",
    "pyarrow.json",
)
"""Modules that Ray imports when a worker starts and when it serializes for the first time."""

_ONE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Environment in which the import of PyArrow starts no thread."""

_OF_INSTANCE = ("RAY_JOB_ID", RAYLET)
"""Environment variables that Ray reads when it is imported, and then no more."""

_LENGTH = struct.Struct("!I")
_PEER = struct.Struct("3i")  # process, user and group (unix(7), SO_PEERCRED)
_REQUEST_S = 5.0
_RAYLET_S = 5.0
_READ_BYTES = 4096
_STREAMS = 3  # standard input, output and error
_THRESHOLDS = (700, 10, 10)  # of Python's garbage collection, which the command changes

_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from appliance.ray.forks.fork_server import serve
serve(int(sys.argv[2]))
"""


@dataclass(frozen=True)
class Server:
    """A fork server that this process has started, and whose end is that of this process."""

    process: subprocess.Popen[bytes]
    address: str
    settings: dict[str, str]

    @property
    def executable(self) -> str:
        """Command that takes the place of Python where Ray starts a worker."""
        command = [sys.executable, "-S", str(LAUNCHER), f"{SERVER_WORD}{self.address}"]
        return shlex.join(command)


_current: Server | None = None


@contextmanager
def workers_forked(script: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Let ``LAUNCHER`` fork the workers of an instance that starts in the block.

    Args:
        script: What starts a worker where the server cannot.

    Yields:
        The process of the server.
    """
    server = _running()
    os.environ[ADDRESS] = f"{server.address} {script}"
    try:
        yield server.process
    finally:
        del os.environ[ADDRESS]


def stop() -> None:
    """End the fork server of this process; the workers that it has started stay. Idempotent."""
    global _current  # noqa: PLW0603
    if _current is not None:
        _current.process.kill()
        _current.process.wait()
        assert _current.process.stdin is not None, "it is a pipe"
        with suppress(OSError):  # it had ended before it could be told of a group
            _current.process.stdin.close()
        _current = None


def tell_groups(groups: Collection[int]) -> None:
    """Tell the fork server which process groups of Ray it ends if this process is killed.

    A raylet ends with the process then, but its agents would notice that after a minute.
    """
    if _current is None:
        return
    assert _current.process.stdin is not None, "it is a pipe"
    with suppress(OSError):  # it has ended, and will be replaced
        _current.process.stdin.write(f"{' '.join(map(str, groups))}\n".encode())
        _current.process.stdin.flush()


def end_workers() -> None:
    """End the workers that are left of an instance of Ray that has ended.

    Ray ends those that it knows. One that still starts would look for Ray for a minute.
    """
    if _current is not None:
        end_below(_current.process.pid)


def _running() -> Server:
    """Return the fork server of this process, a new one if there is none or it is outdated."""
    global _current  # noqa: PLW0603
    if _current is not None and (
        _current.settings != _settings() or _current.process.poll() is not None
    ):
        stop()
    if _current is None:
        _current = start_server()
        atexit.register(stop)
    return _current


def _settings() -> dict[str, str]:
    return {
        key: value
        for key, value in os.environ.items()
        if key.startswith(_SETTINGS) and key != _SET_BY_RAY
    }


def start_here() -> None:
    """Start the fork server of this process as a fork of it, with the code that it has loaded.

    Nothing starts where there is a server, or other threads run, which may hold locks.
    """
    global _current  # noqa: PLW0603
    if _current is None and threading.active_count() == 1:
        _load(PRELOADED)
        sys.stdout.flush()
        sys.stderr.flush()
        _current = start_server(_serve_in_fork)
        atexit.register(stop)


def start_server(serve_in_fork: Callable[[int], None] | None = None) -> Server:
    """Start a fork server; requests wait until it has loaded the code.

    Args:
        serve_in_fork: What a fork of this process does in place of a program of its own.
    """
    address = f"waferstream-{secrets.token_hex(16)}"
    path = [str(_HERE), *(entry for entry in sys.path if entry)]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{address}")
        listener.listen(128)
        words = ["-P", "-c", _PROGRAM, json.dumps(path), str(listener.fileno())]
        process = subprocess.Popen(
            [sys.executable, *words],
            # Whoever has other threads gives none.
            preexec_fn=serve_in_fork and partial(serve_in_fork, listener.fileno()),  # noqa: PLW1509
            stdin=subprocess.PIPE,  # its end is that of this process
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # lanes are the parallelism
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C is for the user's process
        )
    return Server(process, address, _settings())


def _serve_in_fork(listener_fd: int) -> None:
    """Serve in a fork of the user's process, which never returns to what that was doing."""
    status = 1
    try:
        _leave_behind(listener_fd)
        Context().run(serve, listener_fd)
        status = 0
    except SystemExit as end:  # of a worker
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _leave_behind(listener_fd: int) -> None:
    """Leave what belongs to the user's process alone: its files, signals, log and last acts."""
    atexit._clear()
    os.closerange(_STREAMS, listener_fd)
    os.closerange(listener_fd + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = logging.getLogger("waferstream")
    log.handlers.clear()
    log.setLevel(logging.NOTSET)
    log.propagate = True
    gc.set_threshold(*_THRESHOLDS)


def serve(listener_fd: int) -> None:
    """Load the code, then start a worker for each request until the user's process ends.

    Standard input has a line for each change of the groups that end then (``tell_groups``).
    """
    listener = socket.socket(fileno=listener_fd)
    _load(PRELOADED)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers leave no zombies
    received, instance, to_instance = b"", None, socket.socket()
    while True:
        ready, _, _ = select.select([listener_fd, 0], [], [])
        if 0 in ready:
            line = os.read(0, _READ_BYTES)
            if not line:
                _end_instance(received)
                return
            received += line
            continue
        connection, _ = listener.accept()
        with connection, suppress(OSError, ValueError, EOFError):
            connection.settimeout(_REQUEST_S)
            request, streams = _received(connection)
            environment = json.loads(request)["environment"]
            if instance != (instance := [environment.get(name) for name in _OF_INSTANCE]):
                to_instance.close()  # whose workers stay
                to_instance, requests = socket.socketpair()
                if os.fork() == 0:
                    for other in (connection, listener, to_instance):
                        other.close()
                    for stream in streams:
                        os.close(stream)
                    break
                requests.close()
            try:
                send(to_instance, request, streams)
            except OSError:
                instance = None
                raise
            finally:
                for stream in streams:
                    os.close(stream)
            connection.sendall(b"\1")
    _serve_instance(requests, environment)


def _serve_instance(requests: socket.socket, environment: dict[str, str]) -> None:
    """Load Ray, then fork a worker for each request until the fork server closes the socket."""
    set_environment(environment | _ONE_THREAD)
    _load(_WITH_RAY, _WHERE_INSTALLED)
    while True:
        try:
            request, streams = _received(requests)
        except (OSError, EOFError):
            _end_with(environment.get(RAYLET, ""))
            return
        if os.fork() == 0:
            break
        for stream in streams:
            os.close(stream)
    requests.close()
    become_worker(json.loads(request), streams)


def _end_with(raylet: str) -> None:
    """End the workers of this process if their raylet, a number, ends with the fork server.

    Somebody has killed it with the user's process, and so nobody else ends workers that still
    start: they would look for the raylet for half a minute.
    """
    try:
        opened = os.pidfd_open(int(raylet))
        has_ended = bool(select.select([opened], [], [], _RAYLET_S)[0])
    except ProcessLookupError:
        has_ended = True
    except (OSError, ValueError):  # a kernel that opens no processes; no raylet
        return
    if has_ended:
        end_below(os.getpid())


def _load(modules: Sequence[str], where_installed: Sequence[str] = ()) -> None:
    gc.disable()  # imports make nothing that could be collected: a tenth of their time
    for module in modules:
        import_module(module)
    for module in where_installed:
        with suppress(ImportError):
            import_module(module)
    gc.freeze()  # what is never collected stays shared
    gc.enable()


def _end_instance(received: bytes) -> None:
    """End all that is left of the instance of Ray of a process that was killed."""
    *lines, _ = received.split(b"\n")
    groups = [int(word) for word in lines[-1].split()] if lines else []
    if groups:  # the workers of a joined Ray have a raylet of their own
        end_groups(groups)
        end_below(os.getpid())


def _received(connection: socket.socket) -> tuple[bytes, Sequence[int]]:
    """Return a request of a process of the same user, and its standard streams."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    if _PEER.unpack(peer)[1] != os.getuid():
        raise PermissionError("a request of another user")
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    text = bytearray()
    while len(text) < length:
        part = connection.recv(length - len(text))
        if not part:
            raise EOFError
        text += part
    return bytes(text), streams
