"""A command of a role is the same on every kind of cluster, and under all that wraps roles."""

from pathlib import Path

import pytest

from appliance.coordinator.commands import AskServers
from cstorch import Backend
from tests.support.programs.cstorch_program import cluster_of
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster
from waferstream.core.roles.commands import Digest, Install

STEPS = 2


def digests(backend: Backend) -> dict[str, str]:
    """Return the hash of the masters of each weight server."""
    return cluster_of(backend).do(AskServers(Digest()))


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    found: dict[str, str] = train_on_cluster(
        init_config(), Shape(2, servers=2), STEPS, inspect=digests
    )
    assert found.keys() == {"wgt-0", "wgt-1"}
    assert len(set(found.values())) == 2
    return found


def test_recovery_and_faults_pass_a_command_on(expected: dict[str, str], tmp_path: Path) -> None:
    """With replicas, supervision, and a role in the shell of its fault."""
    faults = ("wgt-1@2:exception",)
    shape = Shape(2, servers=2, restarts=2, has_replicas=True, faults=faults, folder=tmp_path)
    assert train_on_cluster(init_config(), shape, STEPS, inspect=digests) == expected


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_ray_carries_a_command(expected: dict[str, str], tmp_path: Path) -> None:
    """After a weight server was lost, and filled from its replica."""
    faults = ("wgt-1@2:kill",)
    shape = Shape(*(2, 4, 2, "ray"), restarts=2, has_replicas=True, faults=faults, folder=tmp_path)
    assert train_on_cluster(init_config(), shape, STEPS, inspect=digests) == expected


def test_text_of_a_command_is_what_it_does() -> None:
    assert str(Digest()) == "Digest"
    assert str(AskServers(Digest())) == "Digest on every weight server"
    assert not AskServers(Digest()).changes
    assert AskServers(Install.__new__(Install)).changes
