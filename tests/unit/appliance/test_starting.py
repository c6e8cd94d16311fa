"""Clusters that start again with fewer systems."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

from appliance.coordinator.cluster import Cluster
from appliance.local import LocalRoles
from appliance.starting import LocalStarter
from cstorch import Backend
from tests.support.runs.tiny_training import GPT, Shape, init_config, train_on_cluster
from waferstream.core.program.program import ProgramKind

SHALLOW = GPT | {"num_hidden_layers": 1}


def trained(shape: Shape, path: Path) -> dict[str, Any]:
    """Train a step, save, and train three more."""

    def run(backend: Backend) -> dict[str, Any]:
        results = backend.session.run(ProgramKind.TRAIN, 2, 4)
        return {
            "digest": backend.weights_digest(),
            "results": [(r.step, r.values, r.gradient_norm, r.timing) for r in results],
        }

    found: dict[str, Any] = train_on_cluster(init_config(SHALLOW), shape, 1, save=path, inspect=run)
    return found


def test_next_cluster_may_have_fewer_systems(tmp_path: Path) -> None:
    """As when hosts are lost for good: weights, losses and emulated times stay."""
    sizes: list[int] = []

    def start(starter: LocalStarter) -> Cluster:
        sizes.append(2 if sizes else 3)
        roles = LocalRoles(starter.plan.roles(sizes[-1]))
        return starter.plan.coordinator(roles, num_csx=sizes[-1])

    with (
        patch.object(LocalStarter, "start", start),
        patch.object(LocalStarter, "has_better_hosts", lambda _: len(sizes) == 1),
    ):
        found = trained(Shape(3, restarts=1), tmp_path / "few.mdl")
    assert sizes == [3, 2]
    assert found == trained(Shape(3), tmp_path / "all.mdl")
