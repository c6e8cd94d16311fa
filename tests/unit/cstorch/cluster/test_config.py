"""Cluster configuration of a job."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cstorch import ClusterConfig


def test_cluster_config_defaults() -> None:
    """One system, the default machine of cluster.yaml, no time limit."""
    config = ClusterConfig()
    assert (config.num_csx, config.max_wgt_servers, config.num_workers_per_csx) == (1, 0, 1)
    assert config.job_time_sec is None
    assert config.cluster.runtime.kind == "ray"


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_csx": 0},
        {"max_wgt_servers": -1},
        {"max_wgt_servers": 10**6},
        {"job_time_sec": 0},
        {"num_cs": 2},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_cluster_config_refuses_wrong_values(wrong: Any) -> None:
    """The error names the key."""
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        ClusterConfig(**wrong)


def test_cluster_config_is_frozen() -> None:
    """An assignment is refused."""
    with pytest.raises(ValidationError, match="frozen"):
        ClusterConfig().num_csx = 2
