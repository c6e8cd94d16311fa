"""The plan of a run: every step once, and what is due after which."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.config.sections.init import LoopConfig
from waferstream.training.run_plan import RunPlan, Stage, plan_run, run_end

small = st.integers(1, 12)


def plan(start: int = 0, evaluates: bool = True, **changes: int) -> RunPlan:
    """The plan of ten steps on data of seven batches, unless ``changes`` say otherwise."""
    known = {"log_every": 4, "checkpoint_every": 3, **changes}
    every = {name: known.pop(name) for name in ("log_every", "checkpoint_every")}
    loop = LoopConfig.model_validate({"max_steps": 10, "eval_frequency": 5, **known})
    return plan_run(loop, start=start, steps_in_epoch=7, evaluates=evaluates, **every)


def test_a_plan_of_ten_steps() -> None:
    """Values after the first step, each fourth and each stage; checkpoints after each third."""
    made = plan()
    assert made.stages == (Stage(1, 5, True), Stage(6, 10, True))
    assert made.log_steps == {1, 4, 5, 8, 10}
    assert made.checkpoint_steps == {3, 6, 9, 10}
    assert made.stages[1].relative(set(made.checkpoint_steps)) == [1, 4, 5]


def test_a_resumed_plan_keeps_the_rhythm_of_the_steps() -> None:
    """What is due at a step does not depend on where a run was interrupted."""
    made = plan(start=4)
    assert [(stage.first, stage.last) for stage in made.stages] == [(5, 9), (10, 10)]
    assert made.log_steps == {5, 8, 9, 10}
    assert made.checkpoint_steps == {6, 9, 10}


def test_a_later_launch_keeps_the_plan_of_the_first() -> None:
    """Length and evaluations count from the start of the run; one that may be missing is due."""
    loop = LoopConfig(num_steps=6, eval_frequency=0.5)

    def left(done: int) -> RunPlan:
        every = {"log_every": 4, "checkpoint_every": 0}
        return plan_run(loop, start=2, done=done, steps_in_epoch=7, evaluates=True, **every)

    assert left(2).stages == (Stage(3, 5, True), Stage(6, 8, True))
    assert left(4).stages == (Stage(5, 5, True), Stage(6, 8, True))
    assert left(5).stages == (Stage(6, 5, True), Stage(6, 8, True))
    assert left(8).stages == (Stage(9, 8, True),)
    assert left(6).log_steps == {7, 8}


def test_nothing_is_left_at_the_end() -> None:
    """A run that starts at its last step, or beyond, has no stage."""
    assert plan(start=10).stages == plan(start=11).stages == ()


@pytest.mark.parametrize(
    ("loop", "end"),
    [
        ({"num_steps": 3, "max_steps": 5}, 7),
        ({"max_steps": 5}, 5),
        ({"num_epochs": 2}, 14),
        ({"num_epochs": 2, "steps_per_epoch": 5}, 10),
        ({}, 7),
    ],
)
def test_where_a_run_ends(loop: dict[str, int], end: int) -> None:
    """``num_steps`` counts from the start, 4, and wins; otherwise steps or epochs from zero."""
    assert run_end(LoopConfig.model_validate(loop), start=4, steps_in_epoch=7) == end


@pytest.mark.parametrize(("max_steps", "is_reported"), [(5, True), (7, False), (None, False)])
def test_max_steps_without_effect_is_reported(
    caplog: pytest.LogCaptureFixture, max_steps: int | None, is_reported: bool
) -> None:
    """Where ``num_steps`` says another end; the run begins behind step 4."""
    loop = LoopConfig(num_steps=3, max_steps=max_steps)
    with caplog.at_level(logging.WARNING):
        assert run_end(loop, start=4, steps_in_epoch=None) == 7
    assert ("max_steps: 5 has no effect" in caplog.text) is is_reported


def test_a_fraction_is_of_the_steps_to_come() -> None:
    """Evaluation after every half of the run, wherever it starts; never is 0."""
    half = LoopConfig(max_steps=10, eval_frequency=0.5)
    made = plan_run(
        half, start=2, steps_in_epoch=7, log_every=1, checkpoint_every=0, evaluates=True
    )
    assert [stage.last for stage in made.stages] == [6, 10]
    assert made.checkpoint_steps == set()
    assert plan(eval_frequency=0).stages == (Stage(1, 10, False),)
    assert plan(evaluates=False).stages == (Stage(1, 10, False),)


@given(st.integers(0, 12), small, small, st.integers(0, 12), st.integers(0, 12))
def test_every_step_is_in_one_stage_and_the_last_is_never_lost(
    start: int, steps: int, log_every: int, checkpoint_every: int, eval_every: int
) -> None:
    """Stages follow one another without a gap; each ends with values, the run with a checkpoint."""
    made = plan(
        start,
        num_steps=steps,
        log_every=log_every,
        checkpoint_every=checkpoint_every,
        eval_frequency=eval_every,
    )
    walked = [step for stage in made.stages for step in range(stage.first, stage.last + 1)]
    assert walked == list(range(start + 1, start + steps + 1))
    assert made.log_steps | made.checkpoint_steps <= set(walked)
    assert {stage.last for stage in made.stages} <= made.log_steps
    assert (made.end in made.checkpoint_steps) == (checkpoint_every > 0)
