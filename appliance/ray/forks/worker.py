"""A process that was forked for a worker of Ray becomes it."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from appliance.ray.forks.worker_launcher import NO_AGENTS

_of_worker = ExitStack()
"""What lasts as long as the worker."""


def become_worker(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Run Ray's worker in this process.

    Args:
        request: What the launcher has sent: words, environment, folder, priority.
        streams: Its standard streams.
    """
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    set_environment(request["environment"])
    os.chdir(request["folder"])
    with suppress(OSError):  # more favourable values need a privilege
        os.setpriority(os.PRIO_PROCESS, 0, request["niceness"])
        Path("/proc/self/oom_score_adj").write_text(request["oom_score"])
    sys.argv = request["words"]
    if os.environ.pop(NO_AGENTS, ""):
        from appliance.ray.forks.environments import environments_refused  # noqa: PLC0415  (Ray)

        _of_worker.enter_context(environments_refused())
    np.random.seed()  # as in a process that has just imported it
    runpy.run_path(sys.argv[0], run_name="__main__")


def set_environment(environment: dict[str, str]) -> None:
    """Give this process the environment of a worker, whose parallelism is that of its lanes."""
    os.environ.clear()
    os.environ.update(environment)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
