"""Connect to Ray, or fail within seconds with an error that gives the reason."""

from __future__ import annotations

import atexit
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import ray
from ray._private import parameter, services, worker

from appliance.ray.connection.address import check_address
from appliance.ray.connection.processes import STOPPED_PROCESSES, lost_process
from appliance.ray.connection.session_folders import (
    new_session,
    private_folder,
    remove_ended_sessions,
)
from appliance.ray.connection.token import close_token_file, own_token
from appliance.ray.forks.fork_server import (
    end_groups,
    end_workers,
    tell_groups,
    workers_forked,
)
from appliance.spec import RuntimeSpec
from wsc.core.errors import ClusterJobInitError
from wsc.core.units import MIB
from wsc.host.interrupts import deferred

_LOOK_S = 1.0
_LEAVE_S = 20.0  # how long a shutdown may take after a signal
_OBJECT_STORE_BYTES = 256 * MIB  # control and reports only: tensors travel on the links

# What ray.init raises: Exception where its processes do not start in time, and SystemExit when it
# gives up on an address.
_INIT_FAILURES = (Exception, SystemExit)

_RayParams = parameter.RayParams

_LOOPBACK = "127.0.0.1"
"""Address of a private instance: all its processes then listen there alone."""

_Popen = services.ConsolePopen

_NO_DASHBOARD = (None, None)
"""Address and process of the dashboard. ray.init would start a process for usage statistics even
without a dashboard, and wait for it."""

_OTHER_VERSIONS = "Version mismatch: The "
"""How Ray's text begins where the cluster has other versions; it states both."""

_WORKER_NICENESS = "RAY_worker_niceness"

_CONFIG: dict[str, object] = {
    # ray.init would hold the interpreter's lock until the first workers have started.
    "prestart_worker_first_driver": False,
    # 0: no events of tasks. Nobody reads them here, and a process that leaves a dead gcs_server
    # would wait five seconds to deliver them.
    "task_events_report_interval_ms": 0,
}

_RAYS_GENERATOR = random.Random()

_of_private = ExitStack()
"""What ends with the private Ray that runs: its token."""

_started: list[subprocess.Popen[bytes]] = []
"""The processes of the private Ray that runs, or starts."""

_early: Future[str] | None = None
"""The start of a private Ray that nobody has used yet; its result is the address."""


def enter(runtime: RuntimeSpec) -> bool:
    """Connect this process to Ray; return False if it was connected already.

    The caller shuts Ray down at the end only if the result is True.

    Raises:
        ClusterJobInitError: Ray cannot be started or joined; within seconds when no Ray listens
            at ``runtime.address``.
    """
    global _early
    STOPPED_PROCESSES.limit_s = runtime.heartbeat_timeout_s
    if _early is not None:
        address, _early = _early.result(), None  # a signal meanwhile: entering_early leaves
        if address == runtime.address and ray.is_initialized():
            return True
    if ray.is_initialized():
        return False
    try:
        if runtime.address != "local":
            check_address(runtime.address)
        _init(runtime.address)
    except ClusterJobInitError:
        leave()
        raise
    except _INIT_FAILURES as error:
        leave()
        raise _failure(runtime.address, error) from error
    except BaseException:  # Ctrl-C: leave no half-started instance
        leave()
        raise
    return True


def _failure(address: str, error: BaseException) -> ClusterJobInitError:
    """Return the error of a Ray that cannot be entered."""
    text = str(error.__cause__ or error).strip() or repr(error)
    if text.startswith(_OTHER_VERSIONS):
        cluster, _, own = text.removeprefix(_OTHER_VERSIONS).partition("This process on ")
        return ClusterJobInitError(
            "Ray and Python must have the versions of the Ray cluster",
            code="ray-of-another-version",
            where=f"runtime.address: {address}",
            value=" ".join(own.split()),
            rule=" ".join(cluster.split()),
            remedy="run the program with the versions of the cluster",
        )
    is_private = address == "local"
    return ClusterJobInitError(
        "Ray could not be started" if is_private else "Ray could not be joined",
        code="ray-not-started" if is_private else "ray-not-joined",
        where=f"runtime.address: {address}",
        value=text.splitlines()[-1],
        remedy="stop other work on this host, or try again; Ray's log is in its session folder"
        if is_private
        else "read the log of Ray's head",
    )


@contextmanager
def entering_early(runtime: RuntimeSpec) -> Iterator[None]:
    """Start a private Ray beside what runs in the block, for the first ``enter`` there.

    If that never comes, Ray is shut down after the block.
    """
    global _early  # noqa: PLW0603
    if runtime.kind != "ray" or runtime.address != "local" or ray.is_initialized():
        yield
        return
    STOPPED_PROCESSES.limit_s = runtime.heartbeat_timeout_s
    begun: Future[str] = Future()
    _early = begun
    threading.Thread(target=_begin, args=(runtime, begun), daemon=True).start()
    try:
        yield
    finally:
        if _early is begun:
            with deferred():
                begun.result()
                _early = None
                leave()


def _begin(runtime: RuntimeSpec, begun: Future[str]) -> None:
    """Start a private Ray; where that fails, ``enter`` tries again and raises its error.

    The thread stays as long as Ray's processes: the kernel kills them with the thread that has
    started them (prctl(2), PR_SET_PDEATHSIG), and a raylet that is killed leaves its agents behind.
    """
    try:
        _init(runtime.address)
    except _INIT_FAILURES:
        leave()
    finally:
        begun.set_result(runtime.address)
    node: Any = worker._global_node
    while node is not None and (ray.is_initialized() or node.all_processes):
        time.sleep(_LOOK_S)


def leave() -> None:
    """Shut Ray down, including the agents of a private raylet; signals wait meanwhile.

    Ray kills a raylet that takes longer than a second to end. Its agents would notice that only
    after a minute, and so would workers that still start; they are in its process group, or below
    the fork server.
    """
    with deferred(_LEAVE_S):
        node: Any = worker._global_node
        raylets = [] if node is None else node.all_processes.get("raylet", [])
        groups = {info.process.pid for info in raylets} | {each.pid for each in _started}
        if raylets and lost_process() is not None:  # then a raylet does not end by itself
            for info in raylets:
                info.process.kill()
        ray.shutdown()
        _of_private.close()
        for process in _started:  # of a start that failed, or that Ray has not waited for
            process.kill()
            process.wait()
        _started.clear()
        if groups:
            end_groups(groups)
            end_workers()
            tell_groups(())


def _leave_at_exit() -> None:
    """Let Ray end with this process, before the fork server, which has to wait for its workers."""
    atexit.unregister(leave)
    atexit.register(leave)  # behind the fork server: the last one that is registered runs first


def give_ray_a_generator() -> None:
    """Let the loaded modules of Ray draw random numbers from a generator of their own.

    The global one belongs to the user's program: a step that is traced while Ray starts would seem
    to draw from it.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("ray.") and getattr(module, "random", None) is random:
            module.random = _RAYS_GENERATOR  # type: ignore[attr-defined]


def _config() -> dict[str, object]:
    """Return the settings of a private Ray.

    Ray runs its workers at nice 15, where any other work on the host takes the processor from the
    training. They have the priority of the program, unless the user's environment states another.
    """
    return _CONFIG if _WORKER_NICENESS in os.environ else {**_CONFIG, "worker_niceness": 0}


def _starts_in_own_groups() -> Callable[..., Any]:
    """Return a process starter for Ray that uses new process groups, known to the fork server.

    A signal to the user's group, as timeout(1) sends it, is for the user's process, which saves a
    checkpoint: Ray has to live until then.
    """

    def start(*words: Any, **options: Any) -> Any:
        process = _Popen(*words, process_group=0, **options)
        _started.append(process)
        tell_groups([each.pid for each in _started])
        STOPPED_PROCESSES.watch(process)
        return process

    return start


def _init(address: str) -> None:
    give_ray_a_generator()
    close_token_file()
    # A signal in the middle aborts the process, and Ray puts a handler of its own in our place.
    with deferred():
        if address == "local":
            _start_private()
        else:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)


def _start_private() -> None:
    """Start an instance that listens on loopback alone, in a folder and with a token of its own."""
    folder, session = private_folder(), new_session()

    def params(**given: Any) -> parameter.RayParams:
        # It neither grows nor shows the output of workers: two processes less to start. ray.init
        # would put an address that other hosts reach in the place of loopback.
        own = {"no_monitor": True, "include_log_monitor": False}
        return _RayParams(**given | own | {"node_ip_address": _LOOPBACK, "session_name": session})

    _of_private.enter_context(own_token())
    try:
        _init_private(folder, params)
    finally:
        remove_ended_sessions(folder, running=session if ray.is_initialized() else "")


def _init_private(folder: Path, params: Callable[..., parameter.RayParams]) -> None:
    """Start Ray's processes in a folder, with the parameters that a function makes of its own."""
    with ExitStack() as stack:
        STOPPED_PROCESSES.watch(stack.enter_context(workers_forked()))
        _leave_at_exit()
        for module, name, own in (
            (parameter, "RayParams", params),
            (services, "ConsolePopen", _starts_in_own_groups()),
            (services, "start_api_server", lambda *_, **__: _NO_DASHBOARD),
        ):
            stack.enter_context(mock.patch.object(module, name, own))
        ray.init(
            address="local",
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _system_config=_config(),
            _temp_dir=str(folder),
        )
