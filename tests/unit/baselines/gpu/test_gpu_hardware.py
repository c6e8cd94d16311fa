"""GPU clusters as configuration: presets by name, single numbers changed, nonsense refused."""

import pytest

from baselines.gpu import A100_40, H100, GpuClusterSpec
from wsc.core.config import validate
from wsc.core.errors import ConfigError


def cluster(**data):
    return validate(GpuClusterSpec, data, "cluster.yaml")


def test_a_gpu_is_known_by_its_name():
    """As a word, or as a mapping that changes one number and keeps the others."""
    assert cluster(gpu="H100").gpu == H100
    faster = cluster(gpu={"name": "A100-40GB", "hbm_bandwidth_bytes_per_s": 2e12}).gpu
    assert faster == A100_40.model_copy(update={"hbm_bandwidth_bytes_per_s": 2e12})


def test_an_unknown_gpu_is_refused_with_the_nearest_name():
    """Rather than taken for an A100."""
    with pytest.raises(ConfigError) as refused:
        cluster(gpu="H1000")
    assert "H100" in (refused.value.remedy or "")
    assert "cluster.yaml" in (refused.value.where or "")


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"gpu": {"hbm_bandwidth_bytes_per_s": 0}}, "hbm_bandwidth_bytes_per_s"),
        ({"gpu": {"name": "H100", "matmul_share": 1.1}}, "matmul_share"),
        ({"gpus_per_node": 0}, "gpus_per_node"),
        ({"network": {"nic_bandwidth_bytes_per_s": -1}}, "nic_bandwidth_bytes_per_s"),
    ],
)
def test_impossible_hardware_is_refused_by_field(data, field):
    """No bandwidth, more than the peak, a node without GPUs."""
    with pytest.raises(ConfigError, match=field):
        cluster(**data)
