"""The cluster as the vendor's management interface shows it."""

from __future__ import annotations

from cstorch.cluster.config import ClusterConfig
from cstorch.cluster.management import ClusterManagement
from tests.support.errors import raises
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream_compat.accepted.telemetry import TelemetryClient


def test_a_workflow_has_one_identifier() -> None:
    cluster = ClusterManagement(ClusterConfig(num_csx=2))
    seen = [cluster.workflow_id]
    assert cluster.start_workflow(lock_resources=True)
    seen.append(cluster.workflow_id)
    assert cluster.start_workflow()
    seen.append(cluster.workflow_id)
    cluster.stop_workflow()
    assert seen[0] is cluster.workflow_id is None
    assert seen[1] == seen[2] != seen[0]


def test_settings_cannot_change() -> None:
    cluster = ClusterManagement(ClusterConfig(num_csx=2))
    cluster.config = ClusterConfig(num_csx=2)
    with raises(ConfigError, "cluster-config-changed"):
        cluster.config = ClusterConfig(num_csx=3)


def test_object_stores_are_refused() -> None:
    with raises(CheckpointError, "checkpoint-not-local"):
        ClusterManagement(ClusterConfig()).check_storage_connectivity()


def test_telemetry_accepts_metrics() -> None:
    with TelemetryClient(None, 128, 150) as client:
        client.push({"loss": 1.0}, labels={"step": "1"})
