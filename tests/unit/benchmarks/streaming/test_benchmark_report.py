"""The table and the JSON of a comparison say the same, and what was asked."""

import json

import pytest

from benchmarks.streaming.measure import Turn
from benchmarks.streaming.report import Comparison
from benchmarks.streaming.workload import Workload

WORKLOAD = Workload(
    hidden=64,
    layers=1,
    vocab=64,
    sequence_length=100,
    batch_size=16,
    precision="bf16-stream",
    cores=2,
)


def comparison(**seconds):
    """One turn of two steps per repetition and arm."""
    turns = [
        Turn(repetition, arm, 2, 2 * step)
        for arm, steps in seconds.items()
        for repetition, step in enumerate(steps)
    ]
    return Comparison(WORKLOAD, tuple(turns))


def test_rates_are_medians_and_ratios_are_speeds():
    """16 samples in 2 s are 8 per second; half the seconds is twice the speed."""
    measured = comparison(plain=[2.0, 2.0, 4.0], csx1=[1.0, 2.0, 2.0])
    assert measured.samples_per_s("csx1") == 8.0
    assert measured.ratio("csx1", "plain").median == 2.0
    assert measured.ratio("csx1", "plain").min == 1.0


def test_the_table_has_a_line_per_arm_and_a_column_per_baseline():
    """Only baselines that were measured are compared with."""
    lines = comparison(plain=[2.0], csx1=[1.0]).table().splitlines()
    assert lines[0] == ("batch 16 = 8 x micro-batch 2, 100 tokens per sample, bf16-stream")
    assert "over plain" in lines[1]
    assert "over ddp2" not in lines[1]
    assert lines[3].split() == ["csx1", "16.000", "1600.0", "2.000", "(2.000-2.000)"]


def test_json_keeps_every_turn():
    """What was measured can be looked at again without measuring again."""
    data = json.loads(json.dumps(comparison(plain=[2.0], csx1=[1.0], ddp2=[4.0]).as_json()))
    assert data["turns"][1] == {"repetition": 0, "arm": "csx1", "steps": 2, "seconds": 2.0}
    assert data["workload"]["batch_size"] == 16
    assert data["arms"]["csx1"]["tokens_per_s"] == pytest.approx(1600)
    assert data["arms"]["csx1"]["over_ddp2"] == {"median": 4.0, "min": 4.0, "max": 4.0}
