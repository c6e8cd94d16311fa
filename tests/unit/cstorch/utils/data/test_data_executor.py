"""The executor loop: number of steps, activation and checkpoint steps, refusals."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import cstorch
from cstorch.loop.cadence import MAX_STEPS
from cstorch.utils.data import Schedule
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    batches,
    evaluation_step,
    executor,
    loader,
    losses,
    run,
    running_backend,
    training_step,
)
from tests.support.runs.tiny_training import Shape, cluster_config
from waferstream.core.errors import (
    ApplianceRuntimeJobTimeoutError,
    ConfigError,
    EmptyLoaderError,
)

NO_BATCH: dict[str, Any] = {}


def test_num_steps_is_one_epoch_by_default(backend: cstorch.Backend) -> None:
    """As many steps as the loader has batches."""
    assert len(executor(None)) == len(batches())


def test_num_steps_is_needed_without_a_length(backend: cstorch.Backend) -> None:
    """An endless stream has no epoch."""
    endless = loader(lambda: iter(batches()))
    with raises(ConfigError, "num-steps-unknown"):
        executor(None, endless)
    assert len(executor(7, endless)) == 7


@pytest.mark.parametrize("num_steps", [1.5, "3", True])
def test_num_steps_that_is_not_whole_is_refused(num_steps: Any, backend: cstorch.Backend) -> None:
    """Rounding would train another number of steps."""
    with raises(ConfigError, "num-steps-not-whole"):
        executor(num_steps)


@pytest.mark.parametrize("num_steps", [0, -1, MAX_STEPS + 1])
def test_num_steps_out_of_range_is_refused(num_steps: int, backend: cstorch.Backend) -> None:
    """It is at least one, and a signed 32-bit integer."""
    with raises(ConfigError, "num-steps-out-of-range"):
        executor(num_steps)


@pytest.mark.parametrize(
    ("option", "value"),
    [("activation_steps", 0), ("activation_steps", -2), ("checkpoint_steps", -1)],
)
def test_interval_out_of_range_is_refused(
    option: Any, value: Any, backend: cstorch.Backend
) -> None:
    """0 checkpoint steps mean never; 0 activation steps are an error."""
    with raises(ConfigError, "interval-out-of-range"):
        executor(3, **{option: value})


@pytest.mark.parametrize(
    ("activation", "checkpoint", "reduced"),
    [(4, 6, 2), (3, 3, 3), (10, 5, 5), (7, 3, 1), (4, 0, 4), (5, None, 5), (None, 6, 1)],
)
def test_activation_steps_are_reduced_to_checkpoint_steps(
    activation: Any,
    checkpoint: Any,
    reduced: Any,
    backend: cstorch.Backend,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reduction to the greatest common divisor is logged as a warning."""
    with caplog.at_level(logging.WARNING, "waferstream"):
        loop = executor(12, activation_steps=activation, checkpoint_steps=checkpoint)
    assert loop.activation_steps == reduced
    assert bool(caplog.records) == (reduced != (activation or 1))


def test_loop_repeats_the_data(backend: cstorch.Backend) -> None:
    """More steps than batches: the next epoch begins with the first batch."""
    seen = losses(evaluation_step(backend), executor(5))
    assert seen[3:] == seen[:2]
    assert len(set(seen[:3])) == 3


def test_empty_loader_is_refused(backend: cstorch.Backend) -> None:
    """The error comes before anything is compiled; programs may catch a RuntimeError."""
    assert issubclass(EmptyLoaderError, RuntimeError)
    with raises(EmptyLoaderError, "loader-empty"):
        losses(evaluation_step(backend), executor(1, loader(list)))


def test_two_loops_at_a_time_are_refused(backend: cstorch.Backend) -> None:
    """The second loop fails; the first one can continue."""
    with raises(ConfigError, "two-loops"):
        run(executor(), lambda _: run(executor(), lambda _: None))
    assert backend.session.loop is None


def test_loop_can_be_left_early(backend: cstorch.Backend) -> None:
    """Both ``break`` and an exception end the loop."""
    for _ in executor(5):
        break
    with pytest.raises(KeyError):
        run(executor(5), lambda _: NO_BATCH["missing"])
    assert len(losses(evaluation_step(backend), executor(2))) == 2


def test_loop_yields_the_first_batch_only(backend: cstorch.Backend) -> None:
    """Data go to the systems, not to this process."""
    seen: list[Any] = []
    run(executor(3), seen.append)
    assert all(batch is seen[0] for batch in seen)


def test_loop_knows_first_and_last_iteration(backend: cstorch.Backend) -> None:
    """Iterations are counted from 1."""
    loop = executor(3)
    seen = []
    run(
        loop,
        lambda _: seen.append((loop.user_iteration, loop.is_initial_step, loop.on_final_iteration)),
    )
    assert seen == [(1, True, False), (2, False, False), (3, False, True)]


def test_steps_between_activation_steps_run_in_one_job(
    backend: cstorch.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster gets one call, and all results are there afterwards."""
    step = training_step(backend)
    loop = executor(5, activation_steps=3)
    asked: list[tuple[Any, ...]] = []
    run_steps = backend.session.run

    def note(*args: Any) -> Any:
        asked.append(args[:3])
        return run_steps(*args)

    monkeypatch.setattr(backend.session, "run", note)
    run(loop, step)
    assert asked == [("train", 1, 3), ("train", 4, 5)]
    assert [result.step for result in loop.results] == [4, 5]


def test_loop_without_a_step_runs_nothing(backend: cstorch.Backend) -> None:
    """The loop only yields the data."""
    run(executor(3), lambda _: None)
    assert backend.running_cluster is None


def test_profiler_measures_and_emulates_rates(backend: cstorch.Backend) -> None:
    """Samples per second on this host, and on the emulated machine."""
    loop = executor(4, activation_steps=2)
    losses(training_step(backend), loop)
    assert loop.profiler.rate_tracker.rate > 0
    assert loop.profiler.rate_tracker.global_rate > 0
    assert loop.profiler.emulated_rate > 0
    assert loop.profiler.timed.num_steps == 4


def test_queue_of_a_loop_that_was_left_is_cleared(backend: cstorch.Backend) -> None:
    """Closures of the next loop get the values of their own step."""
    step, loop = training_step(backend), executor(2)
    seen = []
    note = cstorch.step_closure(lambda loss: seen.append(loss.item()))
    for batch in loop:
        note(step(batch))
        break
    for batch in loop:
        note(step(batch))
    assert len(seen) == 2


@pytest.mark.parametrize("loops", [[5], [1, 4]])
def test_job_time_sec_limits_the_job(loops: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is checked before the next steps are sent, in any loop."""
    config = cluster_config(Shape(2)).model_copy(update={"job_time_sec": 10})
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with running_backend(cluster_config=config) as backend:
        step = training_step(backend)

        def body(batch: Any) -> None:
            step(batch)
            now[0] += 6

        def job() -> None:
            for num_steps in loops:
                run(executor(num_steps), body)

        with raises(ApplianceRuntimeJobTimeoutError, "job-time-over"):
            job()
        assert backend.global_step == 1


@pytest.mark.parametrize("mode", ["compile_only", "validate_only"])
def test_loop_has_one_iteration_without_execution(mode: str) -> None:
    """One iteration traces the step; no checkpoint is due."""
    options: dict[str, Any] = {mode: True}
    with running_backend(**options):
        loop = executor(100, checkpoint_steps=1)
        assert len(loop) == 1
        assert not loop.is_checkpoint_step


def test_schedules_count_from_0(backend: cstorch.Backend) -> None:
    schedule = Schedule([Schedule.Range(start=1, end=6, step=2, include_last=True)])
    loop = executor(6, checkpoint_steps=schedule, activation_steps=schedule)
    assert loop.checkpoint_steps == loop.activation_steps == {2, 4, 6}
