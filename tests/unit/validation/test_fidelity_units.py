"""Units of published rows are known however they are spelt; slips and inventions are not."""

import pytest

from validation.rows.units import canonical, measure, unknown_word


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
def test_units_of_published_rows_are_known(written, unit):
    """A quantity, what it is per, and words that describe; the remark in brackets is cut off."""
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
def test_other_units_of_such_sources_are_known(unit):
    """One unknown unit would refuse a whole file, so that what papers commonly state is known."""
    assert unknown_word(canonical(unit)) is None


@pytest.mark.parametrize("unit", ["cylces", "furlongs/s", "tokens/fortnight", "Xs", "Gcycle"])
def test_what_is_no_unit_is_named(unit):
    """A slip in one letter, an invention, and a prefix where none belongs."""
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
def test_spellings_of_one_unit_are_one(written, unit):
    """Seconds are s, FLOPS are FLOP/s, capitals do not matter where they tell nothing apart."""
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
def test_what_is_measured_is_told_from_words_around_it(unit, measured):
    """``per`` is a stroke, adjectives and descriptions fall away."""
    assert measure(unit) == measured
