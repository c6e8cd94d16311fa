"""What a job asks of the cluster, checked where it is written."""

import pytest
from pydantic import ValidationError

from cstorch import ClusterConfig


def test_defaults():
    """One system, the machine of cluster.yaml's defaults, no time limit."""
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
def test_what_cannot_be_is_refused(wrong):
    """With the name of the key."""
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        ClusterConfig(**wrong)


def test_it_does_not_change():
    """Objects are built from it and never look back."""
    with pytest.raises(ValidationError, match="frozen"):
        ClusterConfig().num_csx = 2
