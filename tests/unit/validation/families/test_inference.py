"""Predictions of inference rows on the regions that they name, and in the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.timing.reference_rows import row, write_rows
from validation.families import inference, service
from validation.families.prediction import Predictions
from validation.rows.reader import read_rows

DECODER = {"hidden": "4096", "layers": "32", "heads": "32"}
REGION = {"system": "CS-2 (WSE-2)", "seq_len": "4096", "dtype": "fp16", **DECODER}
FAMILIES = (*inference.FAMILIES, *service.FAMILIES)
SERVICE = {"system": "CS-3 inference service", "dtype": "16-bit weights"}


def _inference(
    row_id: str,
    workload: str,
    value: float,
    unit: str = "tokens/s",
    use: str = "calibration",
    **fields: str,
) -> dict[str, str]:
    """Return an inference row of the training file."""
    described = {"phase": "inference", "evidence": "silicon", **fields}
    return row(
        row_id, "training", workload=workload, value=str(value), unit=unit, use=use, **described
    )


CALIBRATION = [
    _inference("T0138", "LLaMA3-8B prefill [WaferLLM]", 20320.6, grid="480x480", **REGION),
    _inference("T0140", "LLaMA3-8B prefill [WaferLLM]", 27686.5, grid="720x720", **REGION),
    _inference("T0174", "LLaMA3-8B decode [WaferLLM]", 2699.9, grid="420x420", **REGION),
    _inference("T0214", "Llama3.1-8B decode", 1800, "output tokens/s/user", **SERVICE),
]


def _predictions(tmp_path: Path, *rows: dict[str, str]) -> Predictions:
    return Predictions.of(read_rows(write_rows(tmp_path / "rows.csv", *rows)), FAMILIES)


def test_calibration_rows_belong_to_their_families(tmp_path: Path) -> None:
    """Prefill, decode and the service, each within 2 %."""
    compared = _predictions(tmp_path, *CALIBRATION).compared
    families = ["prefill", "prefill", "decode", "inference service"]
    assert [one.family for one in compared] == families
    assert all(abs(one.error) < 0.02 for one in compared)


def test_end_to_end_rows_name_both_regions(tmp_path: Path) -> None:
    """T0115: a prompt of 4096 tokens on 660 x 660 PEs, 128 new ones on 360 x 360."""
    fields = REGION | {"seq_len": "4096/128", "grid": "prefill 660^2, decode 360^2"}
    workload = "LLaMA3-8B end-to-end [WaferLLM]"
    request = _inference("T0115", workload, 604.4, "tokens/s per request", "validation", **fields)
    (one,) = _predictions(tmp_path, request).compared
    assert one.family == "end-to-end inference"
    assert abs(one.error) < 0.15


@pytest.mark.parametrize("phase", ["prefill", "decode", "end-to-end"])
def test_other_programs_are_skipped(tmp_path: Path, phase: str) -> None:
    """The source of the rows compares WaferLLM with far slower compilers on the same wafer."""
    fields = REGION | {"grid": "480x480"}
    own, other = (
        _inference(made_by, f"LLaMA3-8B {phase} [{made_by}]", 1, **fields)
        for made_by in ("WaferLLM", "elsewhere")
    )
    (skipped,) = _predictions(tmp_path, other).skipped
    assert (skipped.family, skipped.code) == ("inference by other programs", "program-unknown")
    assert not any(one.code == skipped.code for one in _predictions(tmp_path, own).skipped)


def test_grids_are_read_in_all_spellings(tmp_path: Path) -> None:
    """Papers and tables write a square of PEs differently."""
    rows = [
        _inference(f"r{i}", "LLaMA3-8B decode [WaferLLM]", 1, **REGION | {"grid": grid})
        for i, grid in enumerate(("420x420", "420^2", "420 x 420", "420*420 PEs"))
    ]
    requests = [
        _inference(f"q{i}", "LLaMA3-8B end-to-end", 1, **REGION | {"grid": grid, "seq_len": "9/9"})
        for i, grid in enumerate(("prefill 660^2, decode 360^2", "prefill: 660x660; decode: 360^2"))
    ]
    compared = _predictions(tmp_path, *rows, *requests).compared
    assert len({one.predicted for one in compared if one.family == "decode"}) == 1
    assert len({one.predicted for one in compared if one.family != "decode"}) == 1
    assert len(compared) == 6


def test_rates_are_predicted_as_times_too(tmp_path: Path) -> None:
    """Both from one prediction."""
    fields = REGION | {"grid": "420x420"}
    rows = [
        _inference(unit, "LLaMA3-8B decode [WaferLLM]", 1, unit, **fields)
        for unit in ("tokens/s", "tokens per second per user", "ms/token", "us per token")
    ]
    rate, per_user, time_ms, time_us = (
        one.predicted for one in _predictions(tmp_path, *rows).compared
    )
    assert rate == per_user == pytest.approx(1e3 / time_ms) == pytest.approx(1e6 / time_us)


def test_systems_are_known_with_and_without_their_wafer(tmp_path: Path) -> None:
    """A CS-3 differs from a CS-2."""
    rates = [
        one.predicted
        for one in _predictions(
            tmp_path,
            *(
                _inference(
                    system, "LLaMA3-8B decode", 1, **REGION | {"grid": "9^2", "system": system}
                )
                for system in ("CS-2 (WSE-2)", "CS-2", "CS-3 (WSE-3)", "CS-3")
            ),
        ).compared
    ]
    assert rates[0] == rates[1] != rates[2] == rates[3]


def test_columns_precede_the_shape_of_the_named_decoder(tmp_path: Path) -> None:
    """Half of the layers are twice as fast; a decoder without a name needs its columns."""
    workload = "LLaMA3-8B decode [WaferLLM]"
    fields = REGION | {"grid": "420x420"}
    full = _inference("a", workload, 1, **fields)
    half = _inference("b", workload, 1, **fields | {"layers": "16"})
    mine = _inference("c", "mine decode", 1, **fields | {"layers": "32", "ffn": "14336"})
    rates = [one.predicted for one in _predictions(tmp_path, full, half, mine).compared]
    assert rates == pytest.approx([rates[0], 2 * rates[0], rates[0]])


@pytest.mark.parametrize(
    ("workload", "fields", "code"),
    [
        ("mine decode", REGION | {"grid": "420x420"}, "decoder-unknown"),
        ("LLaMA3-8B decode", REGION | {"grid": "420x300"}, "region-not-square"),
        ("LLaMA3-8B decode", REGION | {"grid": "900x900"}, "region-exceeds-wafer"),
        ("LLaMA3-8B decode [WaferLLM]", REGION, "region-not-square"),
        ("LLaMA3-8B prefill", REGION | {"grid": "420x420", "seq_len": ""}, "column-empty"),
        ("LLaMA3-8B prefill", REGION | {"grid": "420x420", "unit": "cycles"}, "unit-not-predicted"),
        (
            "LLaMA3-8B end-to-end",
            REGION | {"grid": "660^2", "seq_len": "2048/128"},
            "region-not-stated",
        ),
        (
            "LLaMA3-8B end-to-end",
            REGION | {"grid": "prefill 660^2, decode 360^2"},
            "request-tokens-not-stated",
        ),
        ("Llama9-9B", SERVICE | {"unit": "output tokens/s/user"}, "decoder-unknown"),
        (
            "Llama3.1-8B decode",
            SERVICE | {"unit": "output tokens/s/user", "dtype": "8-bit weights"},
            "weights-not-16-bit",
        ),
        ("Llama3.1-8B decode", SERVICE | {"unit": "s"}, "unit-not-predicted"),
        ("LLaMA3-8B decode", REGION | {"grid": "420x420", "global_batch": "8"}, "several-requests"),
        ("LLaMA3-8B decode", REGION | {"grid": "420x420", "dtype": "int8"}, "weights-not-16-bit"),
        ("inter-wafer activation transfer", SERVICE | {"unit": "us"}, "bound-not-measurement"),
        (
            "LLaMA3-8B max decode length [shift KV]",
            REGION | {"unit": "tokens"},
            "capacity-not-published",
        ),
        (
            "BERT-base inference, end-to-end batch latency",
            {"unit": "s per batch"},
            "no-calibration-row",
        ),
        ("latency per token relative to H100 baseline", {"unit": "%"}, "baseline-not-stated"),
    ],
)
def test_inference_rows_are_skipped_with_the_reason(
    tmp_path: Path, workload: str, fields: dict[str, str], code: str
) -> None:
    """Neither a guess nor silence."""
    predictions = _predictions(tmp_path, _inference("x", workload, 1, **fields))
    assert not predictions.compared
    (skipped,) = predictions.skipped
    assert skipped.code == code


def test_evaluation_rows_belong_to_no_inference_family(tmp_path: Path) -> None:
    """Forward passes on streamed weights do not run on regions (T0086, T0087)."""
    evaluation = _inference("T0086", "GPT-3 111M eval", 1170.9, "samples/s", system="CS-3")
    (skipped,) = _predictions(tmp_path, evaluation).skipped
    assert skipped.family is None
