"""Units are known in all spellings, and predictions are converted to them."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import variant
from validation.rows.row import CannotPredict
from validation.rows.units import (
    canonical,
    in_token_unit,
    in_training_unit,
    in_unit,
    measure,
    unknown_word,
)


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        ("cycles (max PE)", "cycles"),
        ("cycles/MAC (setup 358)", "cycles/MAC"),
        ("s per 1000 steps (device only)", "s per 1000 steps"),
        ("time steps/s", "time steps/s"),
        ("output tokens/s/user", "output tokens/s/user"),
        ("x system diameter, cycles", "x system diameter, cycles"),
        ("% of H100 latency", "% of H100 latency"),
        ("GPU-hours for the full training run", "GPU-hours for the full training run"),
        ("us (<)", "us"),
    ],
)
def test_canonical_removes_remarks_and_keeps_words(written: str, unit: str) -> None:
    """A quantity, its divisors, and words that describe; remarks in brackets are removed."""
    assert canonical(written) == unit
    assert unknown_word(unit) is None


@pytest.mark.parametrize(
    "unit",
    [
        "cycles/cell", "cycles median", "Gcell/s", "Mcells/s", "GB/s", "Gb/s", "TB/s", "pJ/bit", "kWh",
        "TFLOPs/GPU", "tokens/J", "min", "h", "samples/s/CSX", "ms/token", "s/epoch", "Wh/token",
        "requests/s", "GiB/s", "instructions/cycle", "GHz", "bytes/cycle", "B/cycle",
    ],
)  # fmt: skip
def test_unknown_word_accepts_common_units(unit: str) -> None:
    """One unknown unit would refuse a whole file, so the usual units of papers are known."""
    assert unknown_word(canonical(unit)) is None


@pytest.mark.parametrize("unit", ["cylces", "furlongs/s", "tokens/fortnight", "Xs", "Gcycle"])
def test_unknown_word_names_what_is_no_unit(unit: str) -> None:
    """A typing error, an invention, and a prefix that the quantity cannot have."""
    assert unknown_word(canonical(unit)) in unit.split("/")


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        ("samples/sec", "samples/s"),
        ("tokens per second", "tokens per s"),
        ("seconds per epoch", "s per epoch"),
        ("TFLOPS/GPU", "TFLOP/s/GPU"),
        ("\u00b5s", "us"),
        ("Tokens/s", "tokens/s"),
        ("tok/s/user", "tokens/s/user"),
        ("it/s", "iterations/s"),
        ("Wh", "Wh"),
        ("GPU-seconds", "GPU-seconds"),
    ],
)
def test_canonical_unifies_spellings(written: str, unit: str) -> None:
    """Seconds are s, FLOPS are FLOP/s, capitals count only where they distinguish units."""
    assert canonical(written) == unit


@pytest.mark.parametrize(
    ("unit", "measured"),
    [
        ("cycles median", "cycles"),
        ("cycles per matvec", "cycles/matvec"),
        ("output tokens/s/user", "tokens/s/user"),
        ("tokens/s per request", "tokens/s/request"),
        ("s per step", "s/step"),
        ("x speedup", "x"),
    ],
)
def test_measure_removes_descriptive_words(unit: str, measured: str) -> None:
    """``per`` becomes ``/``."""
    assert measure(unit) == measured


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("tokens/s", 20.0), ("tokens per second per user", 20.0), ("ms/token", 50.0)],
)
def test_in_token_unit_converts_rates_and_times(unit: str, expected: float) -> None:
    """20 tokens per second are 50 ms per token."""
    assert in_token_unit(variant("G0443", unit=unit), 20.0) == expected


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("samples/s", 8.0),
        ("tokens/s", 800.0),
        ("steps/s", 0.5),
        ("samples/s/GPU", 4.0),
        ("s/step", 2.0),
        ("ms per iteration", 2000.0),
    ],
)
def test_in_training_unit_converts_samples_per_s(unit: str, expected: float) -> None:
    """8 samples of 100 tokens per second on 2 devices, 16 samples in a step."""
    row = variant("G0039", unit=unit)
    assert in_training_unit(row, 8.0, batch_size=16, seq_len=100, devices=2) == expected


def test_units_that_are_not_predicted_give_the_reason() -> None:
    """The row is skipped."""
    row = variant("G0039", unit="GB")
    for convert in (
        lambda: in_unit(row, "cycles"),
        lambda: in_token_unit(row, 1.0),
        lambda: in_training_unit(row, 1.0, 1, 1, 1),
    ):
        with pytest.raises(CannotPredict) as reason:
            convert()
        assert reason.value.code == "unit-not-predicted"
