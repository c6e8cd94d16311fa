"""A program whose cluster is at the other end of a connection computes the bits it has at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cstorch
from appliance.remote.access import Access, access_path
from cstorch.cluster import job_settings
from tests.support.host.attached import lent
from tests.support.programs.cstorch_program import cluster_of
from tests.support.runs.tiny_training import Shape, cluster_config, init_config, train_on_cluster

SHAPE = Shape(num_csx=3, fan_out=2, servers=2)
STEPS = 4


@pytest.fixture(scope="module")
def embedded() -> Any:
    return train_on_cluster(init_config(), SHAPE, STEPS, inspect=observe)


def observe(backend: cstorch.Backend) -> Any:
    """Return the digest, and emulated time to the picosecond."""
    attribution = backend.session.timed.mean_step().attribution
    return backend.weights_digest(), attribution, type(cluster_of(backend)).__name__


def attached(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every backend of the test use the server."""
    access.write(access_path(access.address))
    given = cstorch.ClusterConfig.model_copy

    def at_server(config: Any) -> Any:
        return given(config, update={"mgmt_address": access.address})

    monkeypatch.setattr(
        "tests.support.runs.tiny_training.cluster_config",
        lambda *args, **machine: at_server(cluster_config(*args, **machine)),
    )


def test_attached_program_has_the_bits_and_times_of_an_embedded_one(
    embedded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also saves a checkpoint, from which the next program goes on."""
    saved = tmp_path / "half.mdl"
    spec = cluster_config(SHAPE).cluster
    with lent(spec) as access:
        attached(access, monkeypatch)
        digest, attribution, kind = train_on_cluster(init_config(), SHAPE, STEPS, inspect=observe)
        train_on_cluster(init_config(), SHAPE, STEPS // 2, save=saved)
        resumed = train_on_cluster(init_config(), SHAPE, STEPS // 2, restore=saved)
    assert kind == "RemoteCluster"
    assert (digest, attribution) == embedded[:2]
    assert resumed == digest


def test_vendor_settings_name_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = job_settings.ClusterConfig(mgmt_address="10.0.0.1:9000", credentials_path="a.json")
    config = settings.for_cluster()
    assert config.mgmt_address == "10.0.0.1:9000"
    assert config.credentials_path == Path("a.json")
