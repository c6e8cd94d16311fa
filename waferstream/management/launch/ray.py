"""Launches as jobs of a running Ray cluster, over its Jobs API.

Only what was admitted gets here, so Ray queues nothing. The systems of a run are held by the
placement group that the run itself makes when it joins the cluster. The management needs Ray's
token (``RAY_AUTH_MODE=token``), and shares the folders of launches with the head.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from ray.exceptions import RayError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from waferstream.core.errors import ClusterJobInitError
from waferstream.management.launch.launcher import (
    ASKED,
    Ended,
    Launch,
    Running,
    State,
    check_folder,
)

_ANSWER_S = 30.0  # an upload of a working directory takes longest
_LOG = "waferstream_log"  # metadata that tells our jobs from others, and people where to look

# Ray can stop a job only after its grace; the end of its supervisor, an actor, kills it.
_KILL = """
import sys, ray
from ray.dashboard.modules.job.common import JOB_ACTOR_NAME_TEMPLATE as name
from ray.dashboard.modules.job.common import SUPERVISOR_ACTOR_RAY_NAMESPACE as namespace
ray.init(log_to_driver=False)
ray.kill(ray.get_actor(name.format(job_id=sys.argv[1]), namespace))
"""


class RayLauncher:
    """Starts jobs of the Ray cluster at an address.

    Args:
        address: Of its dashboard, ``http://host:8265``, or of its head; ``auto`` is this host's.
        logs: A folder; jobs that log elsewhere are those of another management.
    """

    runtime_address = "auto"

    def __init__(self, address: str, logs: Path) -> None:
        self._address = address
        self._logs = logs.resolve()

    @cached_property
    def _client(self) -> JobSubmissionClient:
        return _Client(self._address)

    def start(self, launch: Launch) -> None:
        """Start a command; the second start of one id changes nothing.

        Raises:
            ClusterJobInitError: Its folder is not there, or Ray does not take it.
        """
        check_folder(launch)
        with self._asking(launch.id):
            if launch.id in self.states():
                return
            self._client.submit_job(
                submission_id=launch.id,
                entrypoint=_entrypoint(launch),
                runtime_env=_environment(launch),
                metadata={_LOG: str(launch.log.resolve())},
            )

    def ask_to_end(self, launch_id: str) -> None:
        """Send SIGTERM to a command, and SIGKILL after its grace. Idempotent."""
        if self.states().get(launch_id) == Running():
            with self._asking(launch_id):
                self._client.stop_job(launch_id)

    def kill(self, launch_id: str) -> None:
        """End a command, and all that it has started, within seconds. Idempotent."""
        if self.states().get(launch_id) == Running():
            words = [sys.executable, "-c", _KILL, launch_id]
            with self._asking(launch_id):
                self._client.submit_job(entrypoint=shlex.join(words))

    def states(self) -> Mapping[str, State]:
        """Return the state of each launch that is not forgotten."""
        with self._asking("all launches"):
            jobs = self._client.list_jobs()
        return {
            job.submission_id: _state(job)
            for job in jobs
            if job.submission_id is not None and self._is_own(job.metadata or {})
        }

    def _is_own(self, metadata: Mapping[str, str]) -> bool:
        return _LOG in metadata and Path(metadata[_LOG]).is_relative_to(self._logs)

    def forget(self, launch_id: str) -> None:
        """Remove what is kept of a launch that has ended; its log and its files stay."""
        if isinstance(self.states().get(launch_id), Ended):
            with self._asking(launch_id):
                self._client.delete_job(launch_id)

    def close(self) -> None:
        """Leave everything as it runs: Ray needs nobody."""

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turn the errors of a request into one that names what it was for."""
        try:
            yield
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise ClusterJobInitError(
                "Ray does not do what its Jobs API is asked for",
                code="ray-jobs-refused",
                where=f"{what}, at {self._address}",
                value=str(error).strip().splitlines()[0] if str(error).strip() else repr(error),
                remedy="start Ray's head there, with the token of this process",
            ) from error


class _Client(JobSubmissionClient):
    """A client that waits for no answer without a limit."""

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
        return super()._do_request(method, endpoint, timeout=_ANSWER_S, **options)


def _entrypoint(launch: Launch) -> str:
    """Return the shell command of a job, whose output goes to the log alone."""
    # With packages, Ray makes another interpreter the first one of PATH.
    command = shlex.join(["python" if launch.packages else sys.executable, *launch.words])
    folder, log = shlex.quote(str(launch.folder)), shlex.quote(str(launch.log))
    return f"cd {folder} && exec {command} >> {log} 2>&1"


def _environment(launch: Launch) -> dict[str, Any]:
    """Return what all processes of a job get: files, variables, packages."""
    # The process that stops the job reads the variable, and has the variables of the job.
    grace = {"RAY_JOB_STOP_WAIT_TIME_S": str(launch.whole_grace_s)}
    packages = {"pip": list(launch.packages)} if launch.packages else {}
    return {"working_dir": str(launch.folder), "env_vars": {**launch.env, **grace}, **packages}


def _state(job: JobDetails) -> State:
    """Return the state of a job."""
    if not job.status.is_terminal():
        return Running()
    if job.status == JobStatus.STOPPED:
        return Ended(ASKED)
    if job.driver_exit_code is None:
        return Ended(None, (job.message or "").strip())
    code = int(job.driver_exit_code)
    return Ended(code if code >= 0 else 128 - code)
