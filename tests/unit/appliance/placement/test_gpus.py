"""Systems on GPUs: refused before the start where a host has too few."""

from __future__ import annotations

import pytest

from appliance.placement.gpus import bytes_of_activations, check_gpus, check_gpus_of_hosts
from appliance.placement.placer import Host, Placer
from appliance.spec import ClusterSpec, RuntimeSpec
from appliance.starting import lanes_on
from tests.support.errors import raises
from waferstream.core.config import validate
from waferstream.core.errors import ClusterJobInitError, ConfigError

ON_GPUS = RuntimeSpec(device="cuda")


@pytest.mark.parametrize(("num_systems", "gpus"), [(1, 0), (9, 1), (17, 2)])
def test_host_with_too_few_gpus_is_refused(
    num_systems: int, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This host, and one of a joined cluster."""
    monkeypatch.setattr("appliance.placement.gpus.num_gpus", lambda: gpus)
    check_gpus("cpu", num_systems)
    with raises(ClusterJobInitError, "too-few-gpus"):
        check_gpus("cuda", num_systems)
    placement = Placer((Host("a", "a", 32, gpus=gpus),)).place(num_systems)
    check_gpus_of_hosts("cpu", placement)
    with raises(ClusterJobInitError, "too-few-gpus"):
        check_gpus_of_hosts("cuda", placement)


def test_systems_may_share_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to eight systems each; a host without systems needs none."""
    monkeypatch.setattr("appliance.placement.gpus.num_gpus", lambda: 2)
    check_gpus("cuda", 16)
    check_gpus_of_hosts("cuda", Placer((Host("a", "a", 3, gpus=1), Host("b", "b", 3))).place(3))


@pytest.mark.parametrize("engine", ["wafer", {"sparse_products": "auto"}])
def test_engine_of_the_processor_refuses_gpus(engine: object) -> None:
    """The array of PEs, and products of non-zeros."""
    runtime = {"device": "cuda", "engine": engine}
    with raises(ConfigError, "gpu-without-torch"):
        validate(ClusterSpec, {"runtime": runtime}, "test")


def test_activations_take_half_of_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that the systems use; otherwise what was said, or what the host has."""
    monkeypatch.setattr("appliance.placement.gpus.memory_of_gpus", lambda: [10, 20, 40])
    assert bytes_of_activations(ON_GPUS, 2) == 15
    assert bytes_of_activations(RuntimeSpec(device="cuda", activation_memory=7), 2) == 7
    assert bytes_of_activations(RuntimeSpec(), 2) == "auto"


def test_gpu_takes_micro_batches_one_after_the_other() -> None:
    """Kernels fill a GPU by themselves; lanes would only compete for it."""
    assert lanes_on(RuntimeSpec(device="cuda", cores=8), 2) == 1
    assert lanes_on(RuntimeSpec(cores=8), 2) == 4
