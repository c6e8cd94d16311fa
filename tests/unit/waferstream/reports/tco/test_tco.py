"""Costs of a project on several machines, what decides between them, and who wins when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.errors import raises
from tests.support.reports.html import Parsed
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.reports.tco.comparison import Comparison
from waferstream.reports.tco.costs import WORKING_SHARE
from waferstream.reports.tco.page import comparison_page
from waferstream.reports.tco.resolution import load_comparison
from waferstream.reports.tco.sensitivity import Study
from waferstream.reports.tco.text import as_json, comparison_text, tornado_rows, verdict

WAFER = {
    "name": "wafer", "system": "CS-3", "count": 1, "tokens_per_s": 1000, "computers_kw": 10,
    "hour_usd": {"value": 20, "low": 10, "high": 40}, "set_up_h": 10, "care_h": 1, "lost_share": 0,
}  # fmt: skip
GPUS = {
    "name": "GPUs", "gpu": "H100", "count": 8, "tokens_per_s": 1000, "computers_kw": 20,
    "hour_usd": 1, "set_up_h": 100, "care_h": 2, "lost_share": 0.5,
}  # fmt: skip
FILE: dict[str, Any] = {
    "project": {"runs": {"value": 10, "low": 1, "high": 1000}, "tokens_per_run": 3.6e6},
    "people": {"researchers": 2, "waiting_share": 0.5, "hour_usd": 100},
    "site": {"pue": 1.5, "grid_kg_per_kwh": 0.5, "kwh_usd": 0.1, "unused_share": 0.2},
    "machines": [WAFER, GPUS],
}


def study(**changes: Any) -> Study:
    """Return the study of a file with some sections changed."""
    return Study.of(validate(Comparison, FILE | changes, "tco.yaml"))


def machines(**changes: Any) -> list[dict[str, Any]]:
    """Return both machines, the wafer with some keys changed."""
    return [WAFER | changes, GPUS]


def test_every_part_of_a_cost_follows_from_its_assumptions() -> None:
    """Ten runs of an hour, or of two hours on GPUs of which failures take half of the time."""
    wafer, gpus = (study().costs()[name] for name in ("wafer", "GPUs"))
    assert (wafer.training_h, gpus.training_h) == (10, 20)
    assert (wafer.set_up_usd, wafer.care_usd) == (1000, 1000)
    assert gpus.waiting_usd == pytest.approx(2 * 0.5 * 20 * 100 * WORKING_SHARE)
    assert gpus.hardware_usd == pytest.approx(8 * 20 / 0.8)
    assert (wafer.kwh, wafer.kg_co2e) == (150, 75)
    assert wafer.energy_usd == pytest.approx(15)
    assert wafer.usd == pytest.approx(sum(wafer.items.values()))


def test_the_tornado_is_widest_first_and_says_where_the_lead_turns() -> None:
    """More runs pay for the work of setting up GPUs: at the break-even both cost the same."""
    made = study(machines=machines(hour_usd={"value": 400, "low": 10, "high": 1000}))
    assert made.rivals == ("wafer", "GPUs")
    swings = [bar.swing_usd for bar in made.tornado]
    assert swings == sorted(swings, reverse=True)
    (runs,) = (bar for bar in made.tornado if bar.key == "project.runs")
    assert runs.break_even is not None
    assert 10 < runs.break_even < 1000
    assert made.lead_usd({"project.runs": runs.break_even}) == pytest.approx(0, abs=1e-3)
    winners = [name == "GPUs" for name in made.winners.values()]
    assert winners == sorted(winners)
    assert set(winners) == {False, True}


def test_an_assumption_without_a_range_has_no_bar() -> None:
    """Nor has one that both machines share in the same measure."""
    assert {bar.key for bar in study().tornado} == {"project.runs", "wafer.hour_usd"}


def test_the_verdict_names_winner_turning_points_and_the_soonest() -> None:
    """In plain sentences."""
    lines = verdict(study(machines=machines(hour_usd={"value": 400, "low": 10, "high": 5000})))
    assert lines[0].startswith("wafer is the cheapest: ")
    assert any(line.startswith("GPUs is cheaper where wafer.hour_usd is above ") for line in lines)
    assert "The soonest is wafer; the least energy takes wafer." in lines
    assert "No single assumption changes that within its range." in verdict(study())


def test_page_and_json_have_the_whole_comparison() -> None:
    """The tornado is drawn, and every assumption has its source."""
    parsed = Parsed.of(comparison_page(study()))
    assert parsed.sections == ["verdict", "costs", "tornado", "assumptions"]
    assert "wafer.hour_usd" in parsed.text
    data = json.loads(json.dumps(as_json(study())))
    assert data["costs"]["wafer"]["usd"] < data["costs"]["GPUs"]["usd"]
    assert data["tornado"][0]["key"] == "project.runs"
    assert all(one["source"] for one in data["assumptions"].values())
    assert "people.hour_usd" in comparison_text(study())


def test_what_decides_is_told_in_the_currency_of_the_sums() -> None:
    """A currency of which a dollar buys ten: every lead is ten times that in dollars."""
    told = study(currency={"code": "XTS", "usd": 0.1})
    assert "in XTS" in comparison_text(told)
    assert "USD" not in comparison_text(told).partition("assumption    ")[0]
    assert "in XTS;" in Parsed.of(comparison_page(told)).text
    assert tornado_rows(study())[1][3:5] == ("9,123", "132K")
    assert tornado_rows(told)[1][3:5] == ("91.2K", "1.32M")


@pytest.mark.parametrize("value", [0, -5, {"value": 0}])
def test_a_machine_without_power_is_refused(value: object) -> None:
    """The key is named."""
    with pytest.raises(ConfigError, match="computers_kw"):
        study(machines=machines(computers_kw=value))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"machines": machines(hour_usd={"value": 5, "low": 6})}, "estimate-out-of-range"),
        ({"machines": machines(name="GPUs")}, "machine-named-twice"),
        ({"machines": machines(name="site")}, "machine-named-twice"),
        ({"machines": machines(gpu="H100")}, "machine-of-no-kind"),
        ({"machines": machines(tokens_per_s=None)}, "machine-without-rate"),
        ({"machines": [WAFER, {**GPUS, "gpu": "Z80"}]}, "unknown-gpu"),
        ({"machines": machines(system="CS-9")}, "unknown-system"),
        ({"simulation": "nowhere.json"}, "file-not-readable"),
        ({"machines": machines(count=10**30)}, "out-of-range"),
        ({"machines": machines(tokens_per_s=1e-300)}, "out-of-range"),
    ],
)
def test_a_wrong_file_is_refused(changes: dict[str, Any], code: str) -> None:
    """With a code for each mistake."""
    with raises(ConfigError, code):
        study(**changes)


def test_rates_and_powers_come_from_a_simulation(tmp_path: Path) -> None:
    """Of the count of the machine; GPUs with the fastest kind of parallelism that fits."""
    draw = {"systems_kw": 46.0, "hosts_kw": 4.0, "cooling_kw": 20.0}
    point = {
        "num_csx": 2, "prediction": {"tokens_per_s": 5e4}, "energy": {"draw": draw},
        "interval": {"half": 1.02, "nine_tenths": 1.25},
    }  # fmt: skip
    curves = [
        {
            "gpu": "H100",
            "points": [{"gpus": 16, "tokens_per_s": rate, "step": step}],
            "intervals": [{"nine_tenths": 2.0}],
            "extrapolated": [beyond],
        }
        for rate, step, beyond in (
            (3e4, {}, ""),
            (4e4, {"s": 1}, "no published run"),
            (2e4, {"s": 1}, ""),
        )
    ]
    others = [{"system": "CS-3", "points": [point]}]
    simulation = {"system": "CS-2", "points": [], "others": others, "gpus": {"curves": curves}}
    (tmp_path / "simulation.json").write_text(json.dumps(simulation))
    (tmp_path / "tco.yaml").write_text(
        "simulation: simulation.json\nproject: {tokens_per_run: 1e9}\n"
        "machines: [{name: w, system: CS-3, count: 2}, {name: g, gpu: H100, count: 16}]\n"
    )
    made = Study.of(load_comparison(tmp_path / "tco.yaml"))
    rate = made.assumptions["w.tokens_per_s"]
    assert (rate.low, rate.high) == (4e4, 6.25e4)
    values = made.values
    assert (values["w.tokens_per_s"], values["w.computers_kw"]) == (5e4, 50)
    assert (values["g.tokens_per_s"], values["g.computers_kw"]) == (4e4, 2 * (7.75 + 0.65))


def test_a_simulation_that_is_not_json_is_refused(tmp_path: Path) -> None:
    """The file is named."""
    (tmp_path / "s.json").write_text("{")
    with raises(ConfigError, "simulation-not-json") as caught:
        study(simulation=tmp_path / "s.json")
    assert caught.value.where == f"{tmp_path / 's.json'}"


@pytest.mark.parametrize(
    "written", ["[]", "{}", "1", '{"system": "CS-3", "points": [{"num_csx": 1}], "others": []}']
)
def test_a_file_that_is_no_simulation_is_refused(tmp_path: Path, written: str) -> None:
    """Whatever JSON it holds."""
    (tmp_path / "s.json").write_text(written)
    with raises(ConfigError, "not-a-simulation"):
        study(simulation=tmp_path / "s.json")


def test_a_simulation_of_a_model_without_tokens_gives_no_rate(tmp_path: Path) -> None:
    """So the file must state one."""
    point = {"num_csx": 1, "prediction": {"tokens_per_s": None}, "energy": {"draw": {}}}
    simulation = {"system": "CS-3", "points": [point], "others": []}
    (tmp_path / "s.json").write_text(json.dumps(simulation))
    with raises(ConfigError, "machine-without-rate"):
        study(simulation=tmp_path / "s.json", machines=machines(tokens_per_s=None))


def test_machines_that_cost_the_same_are_called_equal() -> None:
    """Even if both cost nothing."""
    free = {"hour_usd": 0, "set_up_h": 0, "care_h": 0}
    equal = study(
        machines=[WAFER | free | {"name": name} for name in ("a", "b")],
        people={"researchers": 0},
        site={"kwh_usd": 0},
    )
    assert verdict(equal)[0] == "a and b cost the same: 0 USD."


def test_a_wafer_of_stated_rate_has_the_power_of_its_systems_and_hosts() -> None:
    """A CS-3 under load, 12 servers each of MemoryX and SwarmX, and its own."""
    values = study(machines=machines(computers_kw=None)).values
    assert values["wafer.computers_kw"] == pytest.approx(23 + 0.47 * (24 + 13.25))
