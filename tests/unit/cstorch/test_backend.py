"""The backend: one per process, from configuration to cluster and shutdown."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from tests.support.cstorch_program import (
    batches,
    evaluation_step,
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.errors import raises
from tests.support.local_machine import Regression, random_batches
from tests.support.tiny_training import Shape, cluster_config
from wsc.core.errors import (
    ApplianceNanError,
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
    CheckpointError,
    ConfigError,
    WaferStreamError,
)
from wsc.core.units import PS_PER_S


def test_second_backend_is_refused(backend: cstorch.Backend) -> None:
    """A second construction is refused; without arguments the existing backend is returned."""
    with pytest.raises(RuntimeError, match="one per process"):
        cstorch.backend("CSX")
    assert cstorch.backend() is cstorch.current_backend() is backend


def test_current_backend_needs_a_backend() -> None:
    """There is none before the construction and after the shutdown."""
    with pytest.raises(RuntimeError, match="no backend yet"):
        cstorch.current_backend()
    with running_backend() as backend:
        pass
    backend.shutdown()
    with pytest.raises(RuntimeError, match="no backend yet"):
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


def test_compile_only_excludes_validate_only() -> None:
    """Validation stops before compiling ends."""
    with raises(ConfigError, "compile-only-and-validate-only"):
        cstorch.backend("csx", compile_only=True, validate_only=True)


def test_models_are_built_on_the_device(backend: cstorch.Backend) -> None:
    """The device is a torch context in which any model code works."""
    with backend.device as device:
        assert torch.nn.Linear(2, 2).weight.device == device
    assert backend.is_csx
    assert not backend.is_cpu
    assert backend.is_e2e_execution


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
        found = backend.size()
    assert (found.num_csx, found.num_servers, found.num_workers) == size


def test_size_has_as_many_lanes_as_fill_the_host() -> None:
    """The program is laid out for as many lanes as the nodes have."""
    runtime = RuntimeSpec(kind="ray", cores=6)
    config = cstorch.ClusterConfig(num_csx=2, cluster=ClusterSpec(runtime=runtime))
    with running_backend(cluster_config=config) as backend:
        assert backend.size().lanes == 3
    with running_backend(Shape(2)) as backend:
        assert backend.size().lanes == 1


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


def test_emulated_start_up_is_logged_once(
    backend: cstorch.Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """The line appears with the first program of the cluster only."""
    with caplog.at_level("INFO", "waferstream"):
        losses(training_step(backend), executor(2))
        losses(evaluation_step(backend), executor(2))
    (line,) = [text for text in caplog.messages if text.startswith("Emulated start-up")]
    assert "programming 110.00 s, initial weights 2.30 s; each checkpoint: " in line
    assert backend.start_up is not None
    assert backend.start_up.programming_ps == 110 * PS_PER_S


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


def test_refused_checkpoint_can_be_restored_leniently(tmp_path: Path) -> None:
    """The restore is repeated although the first attempt had started a cluster."""
    Checkpoints.write(tmp_path / "c.mdl")
    seen = []
    for is_refused_first in (False, True):
        with running_backend() as backend:
            backend.register(Regression(depth=3))
            evaluate = evaluation_step(backend)
            if is_refused_first:
                backend.restore(tmp_path / "c.mdl", states={"model"})
                with raises(CheckpointError, "checkpoint-keys-mismatch"):
                    losses(evaluate, executor(1))
            backend.restore(tmp_path / "c.mdl", states={"model"}, strict=False)
            seen += losses(evaluate, executor(1))
    assert seen[0] == seen[1]


def poisoned() -> list[dict[str, torch.Tensor]]:
    (batch,) = random_batches(1, 8)
    batch["x"][3] = float("nan")
    return [batch]


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


class Checkpoints:
    """Two steps with momentum, and runs that continue from their checkpoint."""

    @staticmethod
    def write(path: Path) -> str:
        with running_backend() as backend:
            step = training_step(backend, momentum=0.9)
            losses(step, executor(2))
            cstorch.save({"model": {}, "optimizer": {}, "global_step": 2}, path)
            losses(step, executor(1))
            return backend.weights_digest()

    @staticmethod
    def go_on(
        path: Path, evaluates_first: bool = False, **options: Any
    ) -> tuple[str, int, dict[str, Any]]:
        with running_backend(Shape(3, servers=2)) as backend:
            objects = backend.restore(path, **options)
            if evaluates_first:
                losses(evaluation_step(backend), executor(1))
            losses(training_step(backend, momentum=0.9), executor(1))
            return backend.weights_digest(), backend.global_step, objects


@pytest.mark.parametrize("evaluates_first", [False, True])
def test_restore_of_all_states_continues_the_training(
    tmp_path: Path, evaluates_first: bool
) -> None:
    """The third step has the weights, momentum and number of an uninterrupted run."""
    expected = Checkpoints.write(tmp_path / "c.mdl")
    continued = Checkpoints.go_on(tmp_path / "c.mdl", evaluates_first)
    digest, step, objects = continued
    assert (digest, step, objects["global_step"]) == (expected, 3, 2)


def test_restore_of_the_model_alone_starts_at_step_0(tmp_path: Path) -> None:
    """The run has trained weights, but no momentum."""
    expected = Checkpoints.write(tmp_path / "c.mdl")
    digest, step, _ = Checkpoints.go_on(tmp_path / "c.mdl", states={"model"})
    assert (digest != expected, step) == (True, 1)


def test_restore_of_another_file_is_refused(tmp_path: Path) -> None:
    """The error comes before anything is compiled or started."""
    path = tmp_path / "c.mdl"
    path.write_bytes(b"nonsense")
    with running_backend() as backend, raises(CheckpointError, "checkpoint-damaged"):
        backend.restore(path)


def test_reload_reads_another_checkpoint(tmp_path: Path) -> None:
    """Many checkpoints can be evaluated in one process."""
    Checkpoints.write(tmp_path / "c.mdl")
    with running_backend() as backend:
        evaluate = evaluation_step(backend)
        before = losses(evaluate, executor(1))
        backend.restore(tmp_path / "c.mdl")
        backend.reload()
        assert losses(evaluate, executor(1)) != before


def test_restore_of_another_model_needs_strict_off(tmp_path: Path) -> None:
    """A deeper model takes the common layers; a shallower one ignores the other layers."""
    Checkpoints.write(tmp_path / "c.mdl")

    def digest(depth: int, **options: Any) -> str:
        with running_backend() as backend:
            backend.register(Regression(depth=depth))
            backend.restore(tmp_path / "c.mdl", states={"model"}, **options)
            losses(evaluation_step(backend), executor(1))
            return backend.weights_digest()

    for depth, difference in ((3, "missing: layers.2"), (1, "unexpected: layers.1")):
        with raises(CheckpointError, "checkpoint-keys-mismatch") as caught:
            digest(depth)
        assert difference in str(caught.value.value)
        assert digest(depth, strict=False)


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
