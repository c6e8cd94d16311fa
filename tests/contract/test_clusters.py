"""Local and Ray clusters have the same weights, losses and emulated time."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.coordinator.commands import ReadPeakBytes
from cstorch import Backend
from swarmx.links.link import LinkKind
from tests.support.programs.cstorch_program import cluster_of
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster
from waferstream.core.program.program import ProgramKind

LOCAL = Shape(num_csx=3, fan_out=2, servers=2)
STEPS = 3
UNEVEN = {
    "jitter": {
        "seed": 5,
        "kernel_sigma": 0.1,
        "transfer_sigma": 0.1,
        "stragglers": {"csx-1": 1.5, "wgt-1": 2.0},
    }
}
"""A machine with jitter, which must not depend on the order of execution."""


def observe(backend: Backend) -> dict[str, Any]:
    """Return all results of a run: weights, losses, emulated time to the picosecond."""
    more = backend.session.run(ProgramKind.TRAIN, STEPS + 1, STEPS + 2)
    peaks = cluster_of(backend).do(ReadPeakBytes())
    return {
        "digest": backend.weights_digest(),
        "results": [(r.step, r.values, r.gradient_norm, r.timing) for r in more],
        "weights on each node": {node: peak["weights"] for node, peak in peaks.items()},
    }


@pytest.fixture(scope="module")
def local() -> dict[str, Any]:
    results: dict[str, Any] = train_on_cluster(
        init_config(), LOCAL, STEPS, machine=UNEVEN, inspect=observe
    )
    return results


@pytest.mark.ray
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "link",
    [
        pytest.param("shared_memory", marks=pytest.mark.nightly),
        pytest.param("grpc", marks=pytest.mark.nightly),
        "tcp",
    ],
)
def test_ray_cluster_equals_the_local_cluster(local: dict[str, Any], link: LinkKind) -> None:
    """Seven actors and a coordinator agree with one process in bits and in picoseconds."""
    shape = replace(LOCAL, kind="ray", link=link)
    on_ray = train_on_cluster(init_config(), shape, STEPS, machine=UNEVEN, inspect=observe)
    assert on_ray["digest"] == local["digest"]
    assert on_ray["results"] == local["results"]
    assert on_ray["weights on each node"].keys() == local["weights on each node"].keys()


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_systems_that_share_processes_equal_the_local_cluster() -> None:
    """Eleven systems take eight processes of a host with one core."""
    shape = Shape(num_csx=11, fan_out=2, servers=2, cores=1, restarts=1)
    found = [
        train_on_cluster(init_config(), each, STEPS, inspect=observe)
        for each in (shape, replace(shape, kind="ray"))
    ]
    assert found[0]["digest"] == found[1]["digest"]
    assert found[0]["results"] == found[1]["results"]
    assert found[0]["weights on each node"].keys() == found[1]["weights on each node"].keys()
