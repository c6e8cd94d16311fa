"""Cluster configuration of a job."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from appliance.spec import ClusterSpec
from cstorch import ClusterConfig
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import CS2, CS3, MachineSpec, override


def test_cluster_config_defaults() -> None:
    """One system, the default machine of cluster.yaml, no time limit."""
    config = ClusterConfig()
    assert (config.num_csx, config.max_wgt_servers, config.num_workers_per_csx) == (1, 0, 1)
    assert config.job_time_sec is None
    assert config.cluster.runtime.kind == "ray"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"num_csx": 0}, "out-of-range"),
        ({"max_wgt_servers": -1}, "out-of-range"),
        ({"max_wgt_servers": 10**6}, "out-of-range"),
        ({"job_time_sec": 0}, "out-of-range"),
        ({"num_cs": 2}, "unknown-key"),
        ({"cluster": {"runtime": {"kind": "here"}}}, "not-one-of"),
    ],
)
def test_cluster_config_refuses_wrong_values(wrong: Any, code: str) -> None:
    """The error names class and key."""
    with raises(ConfigError, code) as caught:
        ClusterConfig(**wrong)
    assert caught.value.where == "ClusterConfig"
    assert next(iter(wrong)) in caught.value.what


def test_cluster_config_is_frozen() -> None:
    """An assignment is refused."""
    with raises(ConfigError, "configuration-frozen"):
        ClusterConfig().num_csx = 2


def test_system_of_a_program_wins_over_another_of_the_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is as published, and what the cluster changes of the other is told to be left out."""
    changed = override(CS3, clock_hz=CS3.clock_hz // 2)
    config = ClusterConfig(cluster=ClusterSpec(machine=MachineSpec(system=changed)))
    with caplog.at_level(logging.WARNING):
        assert config.with_system("CS-3").cluster.machine.system == changed
        assert not caplog.records
        assert config.with_system("CS-2").cluster.machine.system == CS2
    assert "clock_hz" in caplog.text
