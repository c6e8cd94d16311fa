"""Actors of a running cluster are killed; the run goes on to the weights and losses without a fault."""

import os
import re
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest

from cstorch import Backend
from swarmx.links.link import LinkKind
from tests.support.processes import command_of, descendants
from tests.support.tiny_training import Shape, init_config, train_on_cluster

VICTIMS = ("csx-1", "br-0", "wrk-0")
FIRST_STEPS, STEPS_PER_JOB = 2, 20
DELAY_S = 0.3  # after the start of a job


def pids_of(role: str) -> list[int]:
    """Return the processes of actors with the name of a role, below this process."""
    title = f"ray::{role}".encode()
    return [pid for pid in descendants(os.getpid()) if command_of(pid).startswith(title)]


def kill(role: str) -> None:
    for pid in pids_of(role):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def train_on(backend: Backend, victims: tuple[str, ...]) -> dict[str, Any]:
    """Return the results of one job for each victim, which is killed meanwhile, and of a last one.

    A victim that outlives its job is missed by the next.
    """
    results = []
    for job, victim in enumerate((*victims, "nobody")):
        first = FIRST_STEPS + job * STEPS_PER_JOB + 1
        timer = threading.Timer(DELAY_S, kill, [victim])
        timer.start()
        results += backend.run("train", first, first + STEPS_PER_JOB - 1)
        timer.join()
    return {
        "digest": backend.weights_digest(),
        "results": [(r.step, r.values, r.gradient_norm, r.timing) for r in results],
    }


def nobody(backend: Backend) -> dict[str, Any]:
    """Return the results of the same jobs, in which nobody is killed."""
    return train_on(backend, ("nobody",) * len(VICTIMS))


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    local = Shape(num_csx=3, fan_out=2, servers=2)
    results: dict[str, Any] = train_on_cluster(init_config(), local, FIRST_STEPS, inspect=nobody)
    return results


@pytest.mark.ray
@pytest.mark.timeout(240)
@pytest.mark.parametrize("link", ["shared_memory", pytest.param("grpc", marks=pytest.mark.nightly)])
def test_killed_roles_are_replaced_in_the_running_cluster(
    expected: dict[str, Any], link: LinkKind, caplog: pytest.LogCaptureFixture
) -> None:
    """A system, the root switch and the input worker; the log tells the story."""
    shape = Shape(num_csx=3, fan_out=2, servers=2, kind="ray", link=link, restarts=2)
    with caplog.at_level("WARNING", "waferstream"):
        found = train_on_cluster(
            init_config(), shape, FIRST_STEPS, inspect=lambda backend: train_on(backend, VICTIMS)
        )
    assert found == expected
    told = [record.message for record in caplog.records if "Recovery" in record.message]
    for victim in VICTIMS:
        assert any(line.startswith(f"Recovery: {victim} died") for line in told)
    recoveries = [re.search(r"recovered in .* s; step (\d+) runs again", line) for line in told]
    assert [bool(found) for found in recoveries] == [False, True] * len(VICTIMS)
