"""Tables of curves hold every number."""

from __future__ import annotations

from dataclasses import fields, replace

from tests.support.reports.summaries import (
    DIGEST,
    INTERVAL,
    UNKNOWN,
    run_curve,
    simulated_curve,
    summary,
    with_digest,
)
from tests.support.timing.gpu_points import made_up_curve
from waferstream.machine.attribution import OVERHEAD_NOTE, Attribution
from waferstream.machine.energy import Footprint
from waferstream.machine.sram import Overflow
from waferstream.reports.curve.result import FilledWafer, GpuComparison, RefusedPoint
from waferstream.reports.curve.text import (
    FOOTPRINT_TITLE,
    INTERVAL_TITLE,
    MOST_ROWS,
    TITLE,
    curve_table,
    footnotes,
    gpu_tables,
    gpu_text,
    headline,
    shown_points,
    table_text,
    verdict,
)
from waferstream.reports.economics import training_bill

RUNS = run_curve(summary(1), summary(4, reduce_ps=2_000_000))
DIFFERENT = run_curve(summary(1), with_digest(summary(2), "cd" * 32))
STEP = Attribution(compute=999 * 10**9, weights=10**9)
SIMULATION = simulated_curve((1, 4), STEP)

GPUS = GpuComparison(
    (
        made_up_curve("A100", "ddp", {1: 2.0, 8: 16.0}),
        made_up_curve("H100", "zero3", {8: 0.0}),
        made_up_curve("H100", "tensor+pipeline", {8: 40.0, 1024: 3000.0}),
    ),
    "a note",
)


def test_curve_table_of_runs_has_a_row_for_each_point() -> None:
    """Four systems compute 2 us and wait 2 us for the reduce: half the ideal throughput."""
    header, _, row = curve_table(RUNS)
    assert dict(zip(header, row, strict=True)) == {
        "systems": "4",
        "micro-batch": "2",
        "step": "4.00 us",
        "samples/s": "4,000,000",
        "efficiency": "50.0%",
        "compute": "50.0%",
        "reduce": "50.0%",
        "measured samples/s": "32",
        "weights SHA-256": DIGEST[:12],
    }


def test_curve_table_of_a_simulation_has_predictions() -> None:
    """Causes that take no time have no column."""
    header, _, row = curve_table(SIMULATION)
    cells = dict(zip(header, row, strict=True))
    assert cells["tokens/s"] == "98.3K"
    assert cells["accumulation steps"] == "4"
    assert (cells["compute"], cells["weights"]) == ("99.9%", "0.1%")
    assert not cells.keys() & {"reduce", "training", "weights SHA-256"}


def test_curve_table_has_time_energy_and_cost_of_a_token_budget() -> None:
    """A billion tokens at 100,000 tokens/s on four systems: 11.1 system hours."""
    bill = training_bill(1e9, 1e5, 4, Footprint(kwh=0.222, kg_co2e=0.1, usd=0.6))
    header, row = curve_table(simulated_curve((4,), STEP, bill=bill))
    cells = dict(zip(header, row, strict=True))
    assert (cells["training"], cells["energy"], cells["USD"]) == ("2.8 h", "0.222 MWh", "600")


def test_curve_table_has_power_energy_carbon_and_cost_beside_the_rates() -> None:
    """Of a million tokens, or of a million samples where the model reads no tokens."""
    header, row, _ = curve_table(SIMULATION)
    cells = dict(zip(header, row, strict=True))
    assert [cells[f"{unit}/Mtok"] for unit in ("kWh", "kg CO2e", "USD")] == ["0.25", "0.12", "0.5"]
    assert cells["kW"] == "154"
    header, row, _ = curve_table(replace(SIMULATION, tokens_per_sample=None))
    assert dict(zip(header, row, strict=True))["kWh/Msample"] == "447"


def test_impossible_numbers_of_systems_are_rows_with_a_reason() -> None:
    """In their place; the reason is a footnote."""
    refused = (RefusedPoint(2, "too few samples", "few"), RefusedPoint(8, "too few samples", "few"))
    result = replace(SIMULATION, refused=refused)
    header, *rows = curve_table(result)
    assert [row[:2] for row in rows if row[1] == "impossible"] == [
        ("2", "impossible"),
        ("8", "impossible"),
    ]
    assert [row[0] for row in rows] == ["1", "2", "4", "8"]
    assert {len(row) for row in rows} == {len(header)}
    assert "Impossible with num_csx 2, 8: too few samples [few]." in footnotes(result)


def test_micro_batch_that_overflows_is_said_once() -> None:
    """With the bytes that are missing, on the wafer and on servers, and where."""
    result = replace(
        SIMULATION,
        points=tuple(
            replace(
                point,
                prediction=point.prediction
                and replace(point.prediction, overflow=Overflow("decoder.3 backward", 5 << 30, 0)),
            )
            for point in SIMULATION.points
        ),
    )
    (note,) = [note for note in footnotes(result) if "Overflow" in note]
    assert "micro-batch 3 does not fit" in note
    assert "CS-2 lacks 5.0 GiB of SRAM, with" in note
    assert "decoder.3 backward" in note
    assert not [note for note in footnotes(SIMULATION) if "Overflow" in note]


def test_curve_table_without_tokens_has_no_token_rate() -> None:
    points = tuple(
        replace(point, prediction=point.prediction and replace(point.prediction, tokens_per_s=None))
        for point in SIMULATION.points
    )
    assert "tokens/s" not in curve_table(replace(SIMULATION, points=points))[0]


def test_footnotes_define_every_visible_cause() -> None:
    every = Attribution(**{field.name: 10 for field in fields(Attribution)})
    shares = footnotes(simulated_curve((1,), every))[1]
    assert all(f"{field.name}, " in shares for field in fields(Attribution))
    assert "idle" not in footnotes(SIMULATION)[1]


def test_long_table_shows_25_rows_with_those_that_matter() -> None:
    """The ends, powers of two, and sweet spots; all others are in the JSON file."""
    result = simulated_curve(tuple(range(1, 193)), STEP)
    points = [
        replace(point, efficiency=0.9 if point.num_csx in (57, 133) else 0.8)
        for point in result.points
    ]
    shown = shown_points(replace(result, points=tuple(points)))
    counts = [point.num_csx for point in shown]
    assert len(counts) == MOST_ROWS
    assert counts == sorted(counts)
    assert {1, 2, 4, 64, 128, 57, 133, 192} <= set(counts)
    text = table_text(replace(result, points=tuple(points)))
    assert "25 of 192 rows" in text
    assert "57 (90%), 133 (90%)" in text
    assert len(shown_points(result)) == MOST_ROWS
    assert shown_points(SIMULATION) == list(SIMULATION.points)


def test_footnotes_name_waste_and_its_remedy() -> None:
    """Passes that larger micro-batches would save; what a high overhead means."""
    assert not [note for note in footnotes(SIMULATION) if "fill_wafer" in note]
    (point,) = simulated_curve((1,), Attribution(compute=1, overhead=9)).points
    wasteful = replace(point, filled=FilledWafer(12, 1, 3.9))
    notes = footnotes(replace(SIMULATION, points=(wasteful,)))
    assert any("makes 4 passes; 12 would make 1 and be 3.9 times as fast" in n for n in notes)
    assert OVERHEAD_NOTE in notes


def test_table_text_is_aligned() -> None:
    header, *rows = table_text(RUNS).splitlines()[:3]
    assert {len(line) for line in rows} == {len(header)}


def test_headline_counts_sequences_or_samples() -> None:
    simulated = headline(SIMULATION)
    assert "1.01 trillion parameters, batch of 3,072 sequences of 2,048, on CS-2" in simulated
    assert "batch of 16 samples, 10 steps, on CS-2" in headline(RUNS)
    assert "batch of 1 sequence of 2,048" in headline(replace(SIMULATION, batch_size=1))


def test_verdict_tells_whether_weights_agree() -> None:
    assert RUNS.training is not None
    assert DIFFERENT.training is not None
    assert verdict(RUNS.training, 2).startswith("Bitwise reproducible: yes. All 2 runs")
    assert verdict(DIFFERENT.training, 2).startswith("Bitwise reproducible: NO.")


def test_curve_table_states_both_intervals_and_their_evidence() -> None:
    """Ranges of samples/s; a machine that nobody measured has none, and the notes say why."""
    first, second = simulated_curve((1, 4), STEP, INTERVAL).points
    far = replace(INTERVAL, decades=2.0)
    points = (first, replace(second, interval=far), replace(second, num_csx=8, interval=UNKNOWN))
    result = replace(SIMULATION, points=points)
    header, *rows = curve_table(result)
    cells = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row["50 %"] for row in cells] == ["21.8 to 26.4", "87.3 to 106", "-"]
    assert [row["90 %"] for row in cells] == ["19.2 to 30", "76.8 to 120", "-"]
    assert [row["evidence"] for row in cells] == ["published runs", "extrapolated", "unknown"]
    notes = " ".join(footnotes(result))
    assert "T0009, 2 times away on 1 system, T0009, 100 times away on 4 systems" in notes
    assert f"Interval {UNKNOWN}." in notes
    assert "evidence" not in curve_table(SIMULATION)[0]


def test_gpu_table_has_a_row_for_each_count_with_a_point() -> None:
    assert gpu_tables(GPUS)[TITLE] == [
        ("GPUs", "A100 DDP", "H100 3D"),
        ("1", "2", "-"),
        ("8", "16", "40"),
        ("1,024", "-", "3,000"),
    ]


def test_gpu_table_has_the_interval_of_each_rate() -> None:
    assert gpu_tables(GPUS)[INTERVAL_TITLE][2] == ("8", "12.8 to 20", "32 to 50")


def test_gpu_table_has_energy_and_cost_beside_the_rates() -> None:
    cells = "0.0123 / 0.5"
    assert gpu_tables(GPUS)[FOOTPRINT_TITLE][1:] == [
        ("1", cells, "-"),
        ("8", cells, cells),
        ("1,024", "-", cells),
    ]


def test_gpu_text_ends_with_the_note() -> None:
    assert gpu_text(GPUS).splitlines()[-1] == "a note"
    assert gpu_text(GpuComparison((), "no curves")) == "no curves"
