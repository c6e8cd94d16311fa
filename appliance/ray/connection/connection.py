"""Connect to Ray, or fail within seconds with an error that gives the reason."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import ray
from ray._private import worker

from appliance.ray.connection.address import check_address
from appliance.ray.connection.patches import (
    give_ray_a_generator,
    keep_handlers,
    missing_names,
    patched,
    workers_script,
)
from appliance.ray.connection.private_instance import (
    check_shared_memory,
    close_token_file,
    new_session,
    own_token,
    private_folder,
    remove_ended_sessions,
)
from appliance.ray.connection.processes import STOPPED_PROCESSES, lost_process
from appliance.ray.forks.environments import environments_refused
from appliance.ray.forks.fork_server import LAUNCHER, end_workers, tell_groups, workers_forked
from appliance.ray.forks.leftovers import end_groups
from appliance.spec import RuntimeSpec
from waferstream.core.errors import ClusterJobInitError
from waferstream.core.units import MIB
from waferstream.host.interrupts import deferred

log = logging.getLogger("waferstream")

_LOOK_S = 1.0
_LEAVE_S = 20.0  # how long a shutdown may take after a signal
_OBJECT_STORE_BYTES = 256 * MIB  # control and reports only: tensors travel on the links

# What ray.init raises: Exception where its processes do not start in time, and SystemExit when it
# gives up on an address.
_INIT_FAILURES = (Exception, SystemExit)

_LOOPBACK = "127.0.0.1"
"""Address of a private instance: all its processes then listen there alone."""

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
        _init(runtime)
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
        _init(runtime)
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


def _config(*, reports_metrics: bool) -> dict[str, object]:
    """Return the settings of a private Ray.

    Ray runs its workers at nice 15, where any other work on the host takes the processor from the
    training. They have the priority of the program, unless the user's environment states another.
    """
    own = _CONFIG if _WORKER_NICENESS in os.environ else {**_CONFIG, "worker_niceness": 0}
    return {**own, "enable_metrics_collection": reports_metrics}


def _note_started(process: subprocess.Popen[bytes]) -> None:
    """Note a process of Ray, for the fork server and for the thread that looks at their states.

    It is in a process group of its own: a signal to the user's group, as timeout(1) sends it, is
    for the user's process, which saves a checkpoint, and Ray has to live until then.
    """
    _started.append(process)
    tell_groups([each.pid for each in _started])
    STOPPED_PROCESSES.watch(process)


def _init(runtime: RuntimeSpec) -> None:
    give_ray_a_generator()
    keep_handlers()
    close_token_file()
    # A signal in the middle aborts the process.
    with deferred():
        if runtime.address == "local":
            _start_private(runtime)
        else:
            ray.init(address=runtime.address, log_to_driver=False, logging_level=logging.ERROR)


def _start_private(runtime: RuntimeSpec) -> None:
    """Start an instance that listens on loopback alone, in a folder and with a token of its own."""
    check_shared_memory()
    folder, running = private_folder(), ""
    _of_private.enter_context(own_token())
    _leave_at_exit()
    try:
        with _fast_start(runtime) if runtime.fast_start else nullcontext():
            context: Any = ray.init(
                address="local",
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address=_LOOPBACK,
                _system_config=_config(reports_metrics=runtime.metrics),
                _temp_dir=str(folder),
            )
        running = Path(context.address_info["session_dir"]).name
    finally:
        remove_ended_sessions(folder, running)


@contextmanager
def _fast_start(runtime: RuntimeSpec) -> Iterator[None]:
    """Let Ray start as ``patches`` says in the block, if this release can be changed so."""
    if missing := missing_names():
        log.warning("Ray %s starts slowly: it has no %s", ray.__version__, ", ".join(missing))
        yield
        return
    # It neither grows nor shows the output of workers: two processes less to start. ray.init
    # would put an address that other hosts reach in the place of loopback.
    own = {"no_monitor": True, "include_log_monitor": False}
    parameters = {**own, "node_ip_address": _LOOPBACK, "session_name": new_session()}
    with workers_forked(workers_script()) as server:
        STOPPED_PROCESSES.watch(server)
        with patched(
            parameters, _note_started, LAUNCHER, has_agents=runtime.metrics
        ) as lacks_agents:
            yield
        if lacks_agents():
            _of_private.enter_context(environments_refused())
