"""The size of a cluster, and a start that fails and is repeated."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    batches,
    evaluation_step,
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import random_batches
from tests.support.runs.tiny_training import Shape, cluster_config
from waferstream.core.errors import ApplianceResourceExhausted, ApplianceRuntimeServerError
from waferstream.core.units import PS_PER_S


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"num_csx": 3}, (3, 1, 1)),
        ({"num_csx": 3, "max_wgt_servers": 2}, (3, 2, 1)),
        ({"num_csx": 2, "cluster": {"machine": {"memoryx": {"weight_servers": 4}}}}, (2, 4, 1)),
        ({"num_csx": 4, "cluster": {"runtime": {"input_workers": 3}}}, (4, 1, 3)),
        ({"num_csx": 2, "cluster": {"runtime": {"input_workers": 3}}}, (2, 1, 2)),
        ({"num_workers_per_csx": 0, "cluster": {"runtime": {"input_workers": 3}}}, (1, 1, 1)),
    ],
)
def test_size_of_the_cluster(config: Any, size: tuple[int, int, int]) -> None:
    """The size follows from the job and from the limits of cluster.yaml."""
    with running_backend(cluster_config=cstorch.ClusterConfig(**config)) as backend:
        found = backend.session.settings.size()
    assert (found.num_csx, found.num_servers, found.num_workers) == size


def test_size_has_as_many_lanes_as_fill_the_host() -> None:
    """The program is laid out for as many lanes as the nodes have."""
    runtime = RuntimeSpec(kind="ray", cores=6)
    config = cstorch.ClusterConfig(num_csx=2, cluster=ClusterSpec(runtime=runtime))
    with running_backend(cluster_config=config) as backend:
        assert backend.session.settings.size().lanes == 3
    with running_backend(Shape(2)) as backend:
        assert backend.session.settings.size().lanes == 1


def test_emulated_start_up_is_logged_once(
    backend: cstorch.Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """The line appears with the first program of the cluster only."""
    with caplog.at_level("INFO", "waferstream"):
        losses(training_step(backend), executor(2))
        losses(evaluation_step(backend), executor(2))
    (line,) = [text for text in caplog.messages if text.startswith("Emulated start-up")]
    assert "initial weights 2.38 s, programming 110.00 s; each checkpoint: " in line
    assert backend.session.execution.start_up is not None
    assert backend.session.execution.start_up.programming_ps == 110 * PS_PER_S


def test_model_too_large_for_memoryx_starts_nothing() -> None:
    """The error comes before any process starts, and the backend can be shut down."""
    config = cluster_config(Shape(1), memoryx={"dram_bytes": 10})
    with running_backend(cluster_config=config) as backend:
        with raises(ApplianceResourceExhausted, "model-exceeds-memoryx"):
            losses(training_step(backend), executor())
        assert backend.running_cluster is None


def test_cluster_can_be_started_after_a_failed_start() -> None:
    """The second start sends the weights."""
    made: list[int] = []

    def unreachable_at_first() -> list[dict[str, torch.Tensor]]:
        """Read here, in vain on a worker, and then on a worker."""
        made.append(len(made))
        if made[-1] == 1:
            raise OSError("no network")
        return batches()

    with running_backend() as backend:
        expected = losses(training_step(backend), executor(1))
    with running_backend() as backend:
        step, data = training_step(backend), loader(unreachable_at_first)
        with raises(ApplianceRuntimeServerError, "role-failed"):
            losses(step, executor(1, data))
        assert backend.running_cluster is None
        assert losses(step, executor(1, data)) == expected


def test_program_is_reinstalled_after_a_failed_install() -> None:
    """Some roles have the new program already, which a loop over the old data must not use."""
    made: list[int] = []

    def longer_batches() -> list[dict[str, torch.Tensor]]:
        """Read here, in vain on a worker."""
        made.append(len(made))
        if made[-1] == 1:
            raise OSError("no network")
        return random_batches(3, 16)

    with running_backend() as backend:
        evaluate, data = evaluation_step(backend), loader()
        expected = losses(evaluate, executor(1, data))
        with raises(ApplianceRuntimeServerError, "role-failed"):
            losses(evaluate, executor(1, loader(longer_batches)))
        assert losses(evaluate, executor(1, data)) == expected
