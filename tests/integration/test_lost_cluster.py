"""Processes that no role can replace are killed on real Ray: the run goes on to the same end."""

import os
import signal
from typing import Any

import pytest

from appliance.ray.connection.patches import workers_script
from appliance.ray.forks import fork_server
from appliance.spec import AutoRestart
from cstorch import step_closure
from tests.support.host.processes import command_of, descendants, wait_for_end
from tests.support.programs.cstorch_program import executor, running_backend, training_step
from tests.support.runs.tiny_training import Shape, cluster_config

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]
STEPS, KILLED_AFTER = 6, 3
ACTORS = ("HostedCoordinator", "wgt-0")
"""Victims whose end leaves Ray, and the processes of the other roles."""


def process(title: str) -> int:
    """Return a process below this one: an actor of Ray by its title, or a program by its name."""
    for pid in descendants(os.getpid()):
        command = command_of(pid)
        program = command.split(b"\0")[0]
        if program.endswith(title.encode()) or (
            command.startswith(b"ray::") and title.encode() in command
        ):
            return pid
    raise AssertionError(f"no process {title}")


def train(
    kind: str,
    victim: str | None = None,
    blow: signal.Signals = signal.SIGKILL,
    hit_after: int = KILLED_AFTER,
) -> dict[str, Any]:
    """Train in six jobs of one step; kill or stop a process after the third, or another one."""
    config = cluster_config(Shape(kind=kind)).model_copy(
        update={"autorestart": AutoRestart(max_num_restarts=1)}
    )
    losses: list[float] = []
    systems: list[int] = []  # the process of csx-0, before the kill and at the end
    before = descendants(os.getpid())
    with running_backend(cluster_config=config) as backend:
        step = training_step(backend, momentum=0.9)

        @step_closure
        def note(loss: Any) -> None:
            losses.append(loss.item())
            if victim is not None and len(losses) == hit_after:
                systems.append(process("csx-0"))
                os.kill(process(victim), blow)

        for batch in executor(STEPS):
            note(step(batch))
        digest = backend.weights_digest()
        if victim in ACTORS:
            assert systems == [process("csx-0")]
        started = descendants(os.getpid()) - before
    assert wait_for_end(started) == set()
    return {"losses": losses, "digest": digest, "timed": backend.session.timed}


@pytest.fixture(scope="module", autouse=True)
def running_fork_server() -> None:
    """Start what stays for the next cluster before the first processes are counted."""
    with fork_server.workers_forked(workers_script()):
        pass


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return train("local")


@pytest.mark.parametrize(
    "victim",
    [
        "HostedCoordinator",
        pytest.param("wgt-0", marks=pytest.mark.nightly),
        pytest.param("raylet", marks=pytest.mark.nightly),
        pytest.param("gcs_server", marks=pytest.mark.nightly),
    ],
)
def test_run_goes_on_after_a_kill(undisturbed: dict[str, Any], victim: str) -> None:
    """The coordinator, a weight server or a process of Ray: closures run once, with the losses, weights and
    emulated times of the undisturbed run; no process is left."""
    assert train("ray", victim) == undisturbed


@pytest.mark.parametrize(
    ("victim", "hit_after"),
    [
        ("gcs_server", STEPS),
        pytest.param("gcs_server", KILLED_AFTER, marks=pytest.mark.nightly),
        pytest.param("raylet", KILLED_AFTER, marks=pytest.mark.nightly),
    ],
)
def test_run_goes_on_after_a_stop(undisturbed: dict[str, Any], victim: str, hit_after: int) -> None:
    """A process of Ray that is stopped for ever, in the middle or after the last step, is ended."""
    assert train("ray", victim, signal.SIGSTOP, hit_after) == undisturbed
