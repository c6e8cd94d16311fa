"""GPU clusters as configuration: every number stated, nonsense refused."""

from typing import Any

import pytest

from waferstream.baselines.gpu import chips, clusters
from waferstream.baselines.gpu.chips import A100_80
from waferstream.baselines.gpu.clusters import DGX_A100
from waferstream.baselines.gpu.hardware import GpuClusterSpec, GpuSpec, NetworkSpec
from waferstream.core.config import Config, validate
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.sourced import Sourced, preset

PRESETS = {**chips.PRESETS, **clusters.PRESETS}


@pytest.mark.parametrize("kind", [GpuSpec, NetworkSpec, GpuClusterSpec])
def test_specs_have_no_default_of_any_product(kind: type[Config]) -> None:
    """A number that a preset forgets is an error, never that of an A100."""
    assert all(field.is_required() for field in kind.model_fields.values())


def test_preset_with_a_missing_number_is_refused() -> None:
    """The error names the preset."""
    with pytest.raises(ConfigError) as refused:
        preset(NetworkSpec, "A network", nic_bandwidth_bytes_per_s=Sourced(1.0, "assumed", "any"))
    assert "A network" in (refused.value.where or "")


@pytest.mark.parametrize("name", PRESETS)
def test_preset_has_a_source_for_every_number(name: str) -> None:
    """Its own, or that of the preset it is a variant of."""
    values = PRESETS[name].spec.model_dump().items()
    numbers = {key: value for key, value in values if key not in ("name", "one_shot")}
    assert {
        key: value.value
        for key, value in PRESETS[name].values.items()
        if isinstance(value, Sourced) and value.source
    } == numbers


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"gpu": {**A100_80.model_dump(), "hbm_bandwidth_bytes_per_s": 0}}, "hbm_bandwidth"),
        ({"gpu": {**A100_80.model_dump(), "matmul_share": 1.1}}, "matmul_share"),
        ({"gpus_per_node": 0}, "gpus_per_node"),
        ({"network": {"nic_bandwidth_bytes_per_s": -1}}, "nic_bandwidth_bytes_per_s"),
    ],
)
def test_impossible_hardware_is_refused_by_field(data: dict[str, Any], field: str) -> None:
    """No bandwidth, more than the peak, a node without GPUs."""
    with pytest.raises(ConfigError) as refused:
        validate(GpuClusterSpec, {**DGX_A100.model_dump(), **data}, "cluster.yaml")
    assert field in f"{refused.value.what} {refused.value.where}"
