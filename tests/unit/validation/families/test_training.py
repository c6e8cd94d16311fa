"""Predictions of training throughput: from a row to a run of the emulated cluster."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from tests.support.timing.reference_rows import tiny_training_row, tiny_training_rows
from validation.families.training import FAMILIES, run_of, wafer_of
from validation.published_programs.releases import SPEED_BEFORE
from validation.rows.row import CannotPredict
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import ProgramKind
from waferstream.machine.hardware import CS2, CS3


@pytest.mark.parametrize(
    ("unit", "of_samples"),
    [("samples/s", 1), ("tokens/s", 32), ("samples/s/CSX", 1 / 2), ("steps/s", 1 / 64)],
)
def test_throughput_is_predicted_in_all_usual_units(unit: str, of_samples: float) -> None:
    """Samples, tokens or steps, of all systems or of each."""
    plain, other = tiny_training_rows({"num_csx": "2"}, {"num_csx": "2", "unit": unit})
    predict = FAMILIES[0].predict
    assert predict(other) == pytest.approx(of_samples * predict(plain))


def test_steps_are_predicted_in_seconds() -> None:
    """The batch over its rate; runs of images are not predicted in tokens."""
    plain, step, image = tiny_training_rows(
        {},
        {"unit": "s/step"},
        {"workload": "DiT", "vocab": "", "seq_len": "64", "unit": "tokens/s"},
    )
    predict = FAMILIES[0].predict
    assert predict(step) == pytest.approx(64 / predict(plain))
    with pytest.raises(CannotPredict) as reason:
        predict(image)
    assert reason.value.code == "images-in-tokens"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"workload": "UNet"}, "model-unknown"),
        ({"workload": "RoBERTa-large"}, "model-unknown"),
        ({"workload": "GPT-NeoX 20B"}, "model-unknown"),
        ({"hidden": ""}, "shape-not-stated"),
        ({"seq_len": "not printed"}, "sequence-length-not-stated"),
        ({"workload": "DiT", "seq_len": ""}, "image-size-not-stated"),
        ({"workload": "DiT", "seq_len": "200"}, "image-size-not-stated"),
        ({"global_batch": ""}, "batch-not-stated"),
        ({"dtype": "fp32"}, "activations-not-16-bit"),
        ({"sparsity_pct": "75"}, "sparse-weights"),
        ({"system": "A100"}, "system-unknown"),
    ],
)
def test_runs_that_are_not_stated_give_the_reason(change: dict[str, str], code: str) -> None:
    """Nothing is guessed."""
    row = tiny_training_row(**change)
    with pytest.raises(CannotPredict) as reason:
        run_of(row, ProgramKind.TRAIN)
    assert reason.value.code == code


def test_wafer_of_has_the_speed_of_the_stated_release() -> None:
    """A release before all known ones is refused."""
    plain, stated, other, old = tiny_training_rows(
        {}, {"software": "R2.0.3"}, {"system": "CS-3", "software": "R2.6"}, {"software": "R1.7.1"}
    )
    assert wafer_of(plain) == CS2
    assert wafer_of(stated).software_speed == SPEED_BEFORE
    assert wafer_of(other) == CS3
    with raises(ConfigError, "release-not-calibrated"):
        wafer_of(old)


def test_run_of_divides_the_batch_evenly() -> None:
    """In as few rounds as fit, or in the stated size; half the rounds take half the time."""
    whole, one, two = tiny_training_rows(
        {}, {"micro_batch_per_csx": "8"}, {"micro_batch_per_csx": "8", "num_csx": "2"}
    )
    assert run_of(whole, ProgramKind.TRAIN).micro_batch_size == 64
    runs = [run_of(row, ProgramKind.TRAIN) for row in (one, two)]
    assert [run.num_rounds for run in runs] == [8, 4]
    assert runs[1].samples_per_s == pytest.approx(2 * runs[0].samples_per_s, rel=0.02)


def test_run_of_evaluation_is_faster_than_training() -> None:
    """Evaluation has no backward pass."""
    row = tiny_training_row()
    evaluation, training = (run_of(row, kind) for kind in (ProgramKind.EVAL, ProgramKind.TRAIN))
    assert evaluation.samples_per_s > 1.5 * training.samples_per_s


@pytest.mark.parametrize(
    ("change", "family"),
    [
        ({}, "training CS-2"),
        ({"system": "CS-3"}, "training CS-3"),
        ({"phase": "inference", "workload": "GPT-3 111M eval"}, "evaluation"),
        ({"phase": "inference", "workload": "GPT-3 111M evaluation"}, "evaluation"),
        ({"phase": "eval", "workload": "GPT-3 111M"}, "evaluation"),
    ],
)
def test_training_rows_belong_to_one_family(change: dict[str, str], family: str) -> None:
    """By system and phase."""
    row = tiny_training_row(**change)
    assert [f.name for f in FAMILIES if f.knows(row)] == [family]
