"""Predictions of GPU rows: training rates in all units, requests on the testbed."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import predict, published, published_rows, variant
from validation.families.gpu import FAMILIES
from validation.fit.gpu import FITS
from validation.rows.row import CannotPredict

MPT_7B = "G0039"  # 8 H100, LLM Foundry
DECODE = "G0443"  # LLaMA3-8B on one A100 of the WaferLLM testbed


def _predictions(row_id: str, **changes: list[str]) -> list[float]:
    """Predict variants of a published row that differ in one column."""
    ((column, texts),) = changes.items()
    return [predict(variant(row_id, **{column: text}), FAMILIES) for text in texts]


@pytest.mark.parametrize("family", [fit.family for fit in FITS])
def test_calibration_rows_are_predicted_within_7_percent(family: str) -> None:
    """Mean within 7 %, none worse than 20 %, though all stacks share eight constants."""
    rows = published_rows(family, FAMILIES, use="calibration")
    errors = [abs(predict(row.described(), FAMILIES) / float(row.value) - 1) for row in rows]
    assert sum(errors) / len(errors) < 0.07
    assert max(errors) < 0.21


@pytest.mark.parametrize("row_id", ["G0078", "G0130", "G0381", "G0309", "G0302", "G0291"])
def test_validation_rows_of_other_sizes_are_predicted(row_id: str) -> None:
    """Other models, counts of GPUs and sequence lengths than those of calibration rows."""
    row = published()[row_id]
    assert row.use == "validation"
    assert predict(row.described(), FAMILIES) == pytest.approx(float(row.value), rel=0.1)


@pytest.mark.parametrize(
    ("row_id", "error"),
    [
        ("G0247", 0.1),  # GenSLM 25B on Polaris: slow links, optimizer on the host
        ("G0407", 0.2),  # Pythia 1B in GPU-hours, from code and configuration alone
    ],
)
def test_rows_without_calibration_rows_are_predicted(row_id: str, error: float) -> None:
    """They are counted in a family of their own."""
    row = published()[row_id]
    (family,) = [one for one in FAMILIES if one.knows(row.described())]
    assert family.name == "GPU training uncalibrated"
    assert family.predict(row.described()) == pytest.approx(float(row.value), rel=error)


def test_interleaved_pipeline_is_faster() -> None:
    """G0384, Llama 405B on 512 GPUs: a stage of two parts halves the bubble."""
    row = published()["G0384"]
    plain, interleaved = _predictions(
        "G0384", parallelism=[row.text("parallelism"), "FSDP8 TP8 PP8 Interleaved 1F1B"]
    )
    assert plain == pytest.approx(float(row.value), rel=0.15)
    assert 1.1 * plain < interleaved < 1.5 * plain


def test_request_rate_counts_prompt_and_output() -> None:
    """G0591: LLaMA2-13B on one A100 of lmdeploy, 2,048 tokens in and as many out."""
    row = published()["G0591"]
    assert predict(row.described(), FAMILIES) == pytest.approx(float(row.value), rel=0.05)


def test_prompt_is_a_rate_or_a_time() -> None:
    """G0592 and G0612 are seconds to the first token, those of WaferLLM tokens per second."""
    seconds, millis, rate = _predictions("G0592", unit=["s", "ms", "tokens/s"])
    assert millis == pytest.approx(1e3 * seconds)
    assert rate == pytest.approx(2048 / seconds)


def test_training_rate_is_known_in_all_usual_units() -> None:
    """All units follow from one step."""
    units = [
        "tokens/s", "tokens/s/GPU", "tokens/s per GPU", "samples/sec", "s/step", "ms per iteration",
        "% MFU", "TFLOP/s/GPU", "PFLOP/s",
    ]  # fmt: skip
    tokens, each, per_gpu, samples, step_s, step_ms, mfu, tflops, pflops = _predictions(
        MPT_7B, unit=units
    )
    assert each == per_gpu == tokens / 8
    assert samples == pytest.approx(tokens / 2048)
    assert step_s == pytest.approx(48 / samples)
    assert step_ms == pytest.approx(1e3 * step_s)
    assert tflops == pytest.approx(989 * mfu / 100)
    assert pflops == pytest.approx(8 * tflops / 1e3)


def test_decoders_are_found_by_the_letters_of_their_names() -> None:
    """Hyphens and capitals do not matter."""
    first, second = _predictions(DECODE, workload=["LLaMA3-8B decode", "Llama-3 8B decode"])
    assert first == second


@pytest.mark.parametrize(
    ("row_id", "changes", "code"),
    [
        (MPT_7B, {"unit": "GPU-hours"}, "unit-not-predicted"),
        (DECODE, {"unit": "ms"}, "unit-not-predicted"),
        (DECODE, {"seq_len": ""}, "column-empty"),
        (DECODE, {"gpu": "H100"}, "no-calibration-row"),
        (DECODE, {"cluster": "elsewhere"}, "no-calibration-row"),
        (DECODE, {"global_batch": "8"}, "several-requests"),
        (DECODE, {"dtype": "int4"}, "weights-not-16-bit"),
        (DECODE, {"workload": "GEMV", "unit": "ms"}, "no-family"),
        (DECODE, {"workload": "LLaMA3-8B end-to-end"}, "request-tokens-not-stated"),
        ("G0418", {}, "source-contradicts-itself"),
    ],
)
def test_requests_that_cannot_be_predicted_state_the_reason(
    row_id: str, changes: dict[str, str], code: str
) -> None:
    """Nothing is guessed that neither row nor public configuration states."""
    with pytest.raises(CannotPredict) as reason:
        predict(variant(row_id, **changes), FAMILIES)
    assert reason.value.code == code
