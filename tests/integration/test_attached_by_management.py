"""A program whose cluster a management launches, and which gives it back at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

import cstorch
from tests.support.programs.cstorch_program import executor, losses, running_backend, training_step
from tests.support.runs.tiny_run import ROOT
from tests.support.runs.tiny_training import Shape, cluster_config
from waferstream.management.client.address import keep_token
from waferstream.management.client.remote import RemoteClient
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import ListWorkflows
from waferstream.management.server import ServerSettings, running

SHAPE = Shape(num_csx=2)


def trained(config: cstorch.ClusterConfig) -> tuple[list[float], str]:
    """Train a small model; return its losses and the digest of its weights."""
    with running_backend(cluster_config=config) as backend:
        seen = losses(training_step(backend), executor(3))
        return seen, backend.weights_digest()


@pytest.mark.nightly
def test_management_lends_a_cluster_and_gets_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    config = cluster_config(SHAPE)
    inventory = QueueSpec(systems=2, memoryx_groups=1).inventory()
    with running(ServerSettings(tmp_path, inventory)) as management:
        address = management.doors.address
        keep_token(address, management.token)
        attached = trained(config.model_copy(update={"mgmt_address": address}))
        client = RemoteClient(address, management.token)
        for _ in client.follow(client.do(ListWorkflows(all_states=True))[0].name):
            pass  # until it has ended
        (workflow,) = client.do(ListWorkflows(all_states=True))
        client.close()
    assert workflow.result is Phase.SUCCEEDED
    assert workflow.submission.num_csx == 2
    assert not list(tmp_path.glob("workflows/*/model_dir/cluster.json"))
    assert attached == trained(config)
