"""The backend: one per process, from configuration to cluster and shutdown."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import cstorch
from appliance.local import LocalRoles
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
from waferstream.core.errors import (
    ApplianceNanError,
    ApplianceRuntimeServerError,
    ConfigError,
    ProgramOrderError,
    WaferStreamError,
)
from waferstream.core.roles.role import Job, Report


def test_second_backend_is_refused(backend: cstorch.Backend) -> None:
    """A second construction is refused; without arguments the existing backend is returned."""
    with raises(ProgramOrderError, "second-backend"):
        cstorch.backend("CSX")
    assert cstorch.backend() is cstorch.current_backend() is backend


def test_current_backend_needs_a_backend() -> None:
    """There is none before the construction and after the shutdown."""
    with raises(ProgramOrderError, "no-backend"):
        cstorch.current_backend()
    with running_backend() as backend:
        pass
    backend.shutdown()
    with raises(ProgramOrderError, "no-backend"):
        cstorch.backend()


def test_unknown_backend_type_is_refused() -> None:
    """A refused backend does not block another one."""
    with raises(ConfigError, "unknown-backend-type"):
        cstorch.backend("TPU")
    with running_backend():
        pass


@pytest.mark.parametrize(
    ("option", "remedy"), [("compile_onyl", "compile_only"), ("retries", "leave it out")]
)
def test_unknown_backend_option_is_refused(option: str, remedy: str) -> None:
    """The remedy names a similar option; a refused backend does not block another one."""
    with raises(ConfigError, "unknown-backend-option") as caught:
        cstorch.backend("CSX", None, **{option: True})
    assert option in caught.value.what
    assert remedy in (caught.value.remedy or "")
    with running_backend():
        pass


def test_cluster_config_of_another_type_is_refused() -> None:
    """A mapping is not read as a configuration."""
    with raises(ConfigError, "not-a-cluster-config") as caught:
        cstorch.backend("CSX", cluster_config={"num_csx": 2})
    assert caught.value.value == "dict"


def test_weights_digest_needs_a_running_cluster(backend: cstorch.Backend) -> None:
    """There are no weights before the first step."""
    with raises(WaferStreamError, "cluster-not-running"):
        backend.weights_digest()


def test_steps_are_counted_over_loops(backend: cstorch.Backend) -> None:
    """Training continues at its last step; evaluation does not count."""
    step = training_step(backend)
    losses(step, executor(2))
    losses(evaluation_step(backend), executor(2))
    loop = executor(3)
    losses(step, loop)
    assert backend.global_step == 5
    assert [result.step for result in loop.results] == [5]


def poisoned() -> list[dict[str, torch.Tensor]]:
    (batch,) = random_batches(1, 8)
    batch["x"][3] = float("nan")
    return [batch]


def test_newest_step_is_known_while_a_job_runs(
    backend: cstorch.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = LocalRoles.run, []

    def noting(roles: LocalRoles, job: Job) -> list[Report]:
        seen.append((backend.session.newest_step, backend.session.newest_batch))
        reports = run(roles, job)
        seen.append((backend.session.newest_step, backend.session.newest_batch))
        return reports

    monkeypatch.setattr(LocalRoles, "run", noting)
    losses(training_step(backend), executor(3, activation_steps=3))
    losses(evaluation_step(backend), executor(5, activation_steps=5))
    assert seen == [(1, 0), (3, 0), (3, 1), (3, 5)]


def test_loss_that_is_nan_ends_the_run() -> None:
    """A loss that is no number ends the run."""
    with running_backend() as backend, raises(ApplianceNanError, "loss-not-finite"):
        losses(training_step(backend), executor(2, loader(poisoned)))


def test_check_of_the_loss_can_be_switched_off() -> None:
    """The run continues with a loss that is NaN."""
    with running_backend(check_loss=False) as backend:
        seen = losses(training_step(backend), executor(2, loader(poisoned)))
    assert all(map(math.isnan, seen))


def test_failed_job_is_not_repeated() -> None:
    """Some of its steps may be done; repeating them would change the training."""

    class FailsOnce:
        """A loader whose second batch cannot be read at first."""

        has_failed = False

        def batch(self, step: int) -> dict[str, torch.Tensor]:
            if step == 1 and not FailsOnce.has_failed:
                FailsOnce.has_failed = True
                raise OSError("no disk")
            return batches()[step]

    with running_backend() as backend:
        step, data = training_step(backend), loader(FailsOnce)
        for code in ("role-failed", "cluster-ended"):
            with raises(ApplianceRuntimeServerError, code):
                losses(step, executor(3, data, activation_steps=3))


def test_write_trace_needs_a_recording(tmp_path: Path) -> None:
    """A recorded run writes a Perfetto trace; any other is refused."""
    path = tmp_path / "trace.json"
    config = cluster_config(Shape(2)).model_copy(update={"record": True})
    with running_backend(cluster_config=config) as backend:
        losses(training_step(backend), executor(1))
        backend.write_trace(path)
    assert '"traceEvents"' in path.read_text()
    with (
        running_backend() as backend,
        raises(WaferStreamError, "trace-not-recorded"),
    ):
        backend.write_trace(path)
