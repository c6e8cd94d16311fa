"""Pages of curves hold every number and load nothing."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.reports.html import Parsed
from tests.support.reports.summaries import DIGEST, run_curve, simulated_curve, summary, with_digest
from waferstream.core.units import format_ps
from waferstream.machine.attribution import Attribution
from waferstream.machine.energy import Footprint
from waferstream.reports.curve.page import curve_page, write_curve
from waferstream.reports.curve.result import GpuComparison
from waferstream.reports.curve.text import curve_table
from waferstream.reports.economics import training_bill
from waferstream.reports.run.summary import ModelSummary

RUNS = run_curve(summary(1), summary(4, reduce_ps=2_000_000))
DIFFERENT = run_curve(summary(1), with_digest(summary(2), "cd" * 32))
SIMULATION = simulated_curve((1, 4), Attribution(compute=999 * 10**9, weights=10**9))
PICTURE = b"\x89PNG pixels"


def test_curve_page_is_well_formed_and_holds_every_number() -> None:
    """Cells of both tables, the systems in each; host with special characters, commit."""
    parsed = Parsed.of(curve_page(replace(RUNS, commit="c0ffee"), PICTURE))
    header, first, second = curve_table(RUNS)
    cut = header.index("efficiency") + 1
    rates = [*first[:cut], *second[:cut]]
    assert parsed.cells == [*rates, first[0], *first[cut:], second[0], *second[cut:]]
    assert "Xeon <2>, 2 cores, 8.0 GiB" in parsed.text
    assert "c0ffee" in parsed.text


def test_curve_page_loads_nothing() -> None:
    """No script, no link; the picture is embedded."""
    parsed = Parsed.of(curve_page(RUNS, PICTURE))
    parsed.assert_loads_nothing()
    (source,) = [attributes["src"] for _, attributes in parsed.tags if "src" in attributes]
    assert source is not None
    assert b64decode(source.removeprefix("data:image/png;base64,")) == PICTURE


def test_curve_page_shows_a_common_digest_once() -> None:
    parsed = Parsed.of(curve_page(RUNS, PICTURE))
    assert "Bitwise reproducible: yes" in parsed.text
    assert parsed.text.count(DIGEST) == 1


def test_curve_page_shows_every_digest_if_runs_disagree() -> None:
    parsed = Parsed.of(curve_page(DIFFERENT, PICTURE))
    assert "Bitwise reproducible: NO" in parsed.text
    assert f"1: {DIGEST}" in parsed.text
    assert f"2: {'cd' * 32}" in parsed.text


def test_curve_page_escapes_names() -> None:
    model = ModelSummary("<script>$x & </title> {{ 1 }}", 12)
    parsed = Parsed.of(curve_page(replace(RUNS, model=model), PICTURE))
    assert "<script>$x & </title> {{ 1 }}, 12 parameters" in parsed.text


def test_curve_page_of_a_simulation_has_every_layer_but_no_verdict() -> None:
    """One of 129 layers does not stall; its remedy and the shares of the step are there."""
    parsed = Parsed.of(curve_page(SIMULATION, PICTURE))
    assert parsed.sections == [
        "curve", "detail", "attribution", "stalls", "cost", "error", "reproduce"
    ]  # fmt: skip
    assert "128 of 129 segments stall" in parsed.text
    assert {"decoder.0-127", "buy", "99.9%", format_ps(999 * 10**9)} <= set(parsed.cells)


def test_curve_page_states_energy_carbon_and_cost_of_a_token_budget() -> None:
    bill = training_bill(1e9, 1e5, 4, Footprint(kwh=0.222, kg_co2e=0.1, usd=0.6))
    result = simulated_curve((4,), Attribution(compute=10**9), bill=bill)
    parsed = Parsed.of(curve_page(result, PICTURE))
    assert "0.222 MWh, 100 kg CO2e, 600 USD" in parsed.text


def test_curve_page_states_a_steps_energy_without_token_budget() -> None:
    parsed = Parsed.of(curve_page(SIMULATION, PICTURE))
    assert "154 kW (systems 88" in parsed.text
    assert "43 Wh" in parsed.text
    assert "machine.power" in parsed.text
    assert "--token_budget" in parsed.text


def test_curve_page_names_command_and_configuration() -> None:
    result = replace(RUNS, configuration={"steps": 20})
    parsed = Parsed.of(curve_page(result, PICTURE, command="run.py --simulate"))
    assert "run.py --simulate" in parsed.text
    assert "steps: 20" in parsed.text


def test_write_curve_writes_json_picture_and_page(tmp_path: Path) -> None:
    result = replace(RUNS, gpus=GpuComparison((), "no GPU curves"))
    (tmp_path / "gpus.png").write_text("of an earlier curve")
    page = write_curve(tmp_path, "scaling", result)
    assert page == tmp_path / "scaling.html"
    assert "no GPU curves" in page.read_text()
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "gpus.png").exists()
    point = json.loads((tmp_path / "scaling.json").read_text())["points"][1]
    assert point["emulated"]["attribution_ps"]["reduce"] == 20_000_000
    assert (point["efficiency"], point["prediction"]) == (pytest.approx(0.5), None)
    assert point["run"]["weights_sha256"] == DIGEST
