"""A simulation for people."""

from __future__ import annotations

from dataclasses import replace

from timing.attribution import Attribution
from waferstream.reports.economics import PriceSpec, training_bill
from waferstream.reports.error_bars import ErrorBar
from waferstream.reports.summary import ModelSummary
from waferstream.simulation.results import (
    Detail,
    LayerCheck,
    Memory,
    Point,
    Simulation,
    Starting,
)
from waferstream.simulation.text import headline, simulation_text


def point(num_csx: int) -> Point:
    """One second per step on one system, shared evenly."""
    step_ps = 10**12 // num_csx
    return Point(
        num_csx=num_csx,
        micro_batch_size=3,
        num_rounds=4,
        step_ps=step_ps,
        samples_per_s=12.0 * num_csx,
        tokens_per_s=24576.0 * num_csx,
        flops_per_s=1.5e15 * num_csx,
        utilisation=0.2,
        efficiency=1.0,
        attribution_ps=Attribution(compute=step_ps - 10**9, weights=10**9),
        sram_peak_bytes=3 << 30,
        recomputed_segments=7,
        swarmx_nodes=12,
        steps_ps=(step_ps,),
    )


SIMULATION = Simulation(
    version="0.1.0",
    commit=None,
    system="CS-2",
    model=ModelSummary("gpt3", 1_008_000_000_000),
    batch_size=3072,
    tokens_per_sample=2048,
    micro_batch_size="auto",
    stream_dtype="bfloat16",
    optimizer="AdamW",
    points=(point(1), point(4)),
    detail=Detail(
        num_csx=4,
        memory=Memory(4 << 40, 4 << 40, 8 << 40, "DRAM and flash", 1 << 40, 35 << 30, 15 << 40, False),
        starting=Starting(600 * 10**12, 110 * 10**12, 30 * 10**12, 710 * 10**12),
        layers=(
            LayerCheck("decoder.0-127", "forward", 128, 1 << 30, 0, 10**10, 2 * 10**10, False, "buy"),
            LayerCheck("head", "forward", 1, 1 << 20, 0, 10**10, 10**9, True, ""),
        ),
        bill=training_bill(1e9, 1e5, 4, PriceSpec()),
        prices=PriceSpec(),
        effective_batch="Effective batch size is 3072: 1024 x micro-batch 3 (policy: auto)",
        fill_wafer_size=None,
    ),
    error_bar=ErrorBar("CS-2", 22, 0.05, 0.1, 0.35),
    as_published=True,
    curve_s=0.5,
    machine={},
)  # fmt: skip


def test_every_point_is_a_row_under_the_same_columns() -> None:
    """Causes that never matter have no column."""
    lines = simulation_text(SIMULATION).splitlines()
    header = next(line for line in lines if line.startswith("systems"))
    assert "weights" in header
    assert "reduce" not in header
    rows = lines[lines.index(header) + 1 :][:2]
    assert [row.split()[0] for row in rows] == ["1", "4"]
    assert {len(line) for line in rows} == {len(header)}
    assert "98,304" in rows[1]
    assert "99.6%" in rows[1]


def test_the_detail_is_of_the_point_asked_for() -> None:
    """Roles, start, and a bill whose prices are called illustrative."""
    text = simulation_text(SIMULATION)
    assert "4 x CS-2 in detail" in text
    assert "1.0 TiB of it in flash" in text
    assert "state, which would not fit" in text
    assert "12 min: compile 10 min, then programming 110 s" in text
    assert "illustrative prices" in text
    assert "illustrative" not in simulation_text(
        replace(SIMULATION, detail=replace(SIMULATION.detail, bill=None))
    )


def test_the_policy_and_its_remedy_are_printed() -> None:
    """The remedy appears only where ``auto`` leaves the wafer unfilled."""
    text = simulation_text(SIMULATION)
    assert SIMULATION.detail.effective_batch in text
    assert "fill_wafer" not in text
    detail = replace(SIMULATION.detail, fill_wafer_size=256)
    text = simulation_text(replace(SIMULATION, detail=detail))
    assert "256 samples" in text
    assert "csx.performance.micro_batch_size: fill_wafer" in text


def test_a_token_budget_takes_its_time_on_each_number_of_systems() -> None:
    """A billion tokens at 24,576 a second and at four times as many; in units that fit."""
    lines = simulation_text(SIMULATION).splitlines()
    header = next(index for index, line in enumerate(lines) if line.startswith("systems"))
    assert lines[header].split()[-1] == "training"
    assert lines[header + 1].endswith(" 11.3 h")
    assert lines[header + 2].endswith(" 2.8 h")


def test_a_small_bill_has_digits() -> None:
    """A training of seconds costs little, but not nothing."""
    bill = training_bill(1e6, 1e5, 4, PriceSpec(system_kw=20, kwh=0.1))
    text = simulation_text(replace(SIMULATION, detail=replace(SIMULATION.detail, bill=bill)))
    assert "1 million tokens take 10 s, 0.01111 system hours, 0.2222 kWh, cost 0.1333" in text


def test_every_kind_of_layer_says_whether_it_stalls() -> None:
    """With its cure, and how often it is there."""
    decoder, head = simulation_text(SIMULATION).splitlines()[-2:]
    assert decoder.split()[:3] == ["decoder.0-127", "forward", "128"]
    assert decoder.endswith("yes   buy")
    assert head.endswith("no")


def test_the_headline_counts_in_words() -> None:
    """Sequences where tokens are read, samples elsewhere."""
    assert headline(SIMULATION) == (
        "gpt3, 1.01 trillion parameters, batch of 3,072 sequences of 2,048, on CS-2"
    )
    assert "3,072 samples, on" in headline(replace(SIMULATION, tokens_per_sample=None))
    assert "batch of 1 sequence of 2,048" in headline(replace(SIMULATION, batch_size=1))


def test_every_prediction_has_an_error_bar_or_says_that_there_is_none() -> None:
    """What published runs on that kind of system show; nothing is borrowed from another kind."""
    assert "within 10% of their prediction (22 runs" in simulation_text(SIMULATION)
    assert "as published" not in simulation_text(SIMULATION)
    changed = simulation_text(replace(SIMULATION, as_published=False))
    assert "They ran on the machine as published, of which cluster.yaml changes numbers." in changed
    unknown = simulation_text(replace(SIMULATION, system="CS-3", error_bar=None))
    assert "Error bar: unknown, no published run on a CS-3" in unknown
