"""Grids are told and checked before anything is computed, whatever their size."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.studies.grid import MOST_POINTS, Axis, Grid, Scalar
from waferstream.studies.keys import parse_key, with_machine


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("2,4,8", [2, 4, 8]),
        ("1-64:x2", [1, 2, 4, 8, 16, 32, 64]),
        ("768-1536:+256", [768, 1024, 1280, 1536]),
        ("3-5,16", [3, 4, 5, 16]),
        ("auto,fill_wafer,8,null", ["auto", "fill_wafer", 8, None]),
        ("CS-2,CS-3", ["CS-2", "CS-3"]),
        ("1e9,0.5,true", [1e9, 0.5, True]),
    ],
)
def test_values_are_lists_and_ranges(text: str, values: list[Scalar]) -> None:
    assert list(Axis.parse("micro_batch_size", text).values) == values


@pytest.mark.parametrize("text", ["", "1,,2", "8-1", "1-8:x1", "0-8:x2", "[1", "{a: 1}"])
def test_values_that_cannot_be_read_are_refused(text: str) -> None:
    with raises(ConfigError, "study-values-invalid"):
        Axis.parse("batch_size", text)


@pytest.mark.parametrize(
    ("name", "home", "path"),
    [
        ("machine.swarmx.fan_out", "machine", ("swarmx", "fan_out")),
        ("--machine.swarmx.fan-out", "machine", ("swarmx", "fan_out")),
        ("model.hidden_size", "params", ("init", "model", "hidden_size")),
        ("trainer.init.seed", "params", ("init", "seed")),
        ("batch_size", "params", ("fit", "train_dataloader", "batch_size")),
        ("system", "machine", ("system",)),
        ("scaling", "scaling", ()),
    ],
)
def test_keys_have_the_names_of_the_files(name: str, home: str, path: tuple[str, ...]) -> None:
    key = parse_key(name)
    assert (key.home, key.path) == (home, path)


def test_unknown_key_names_the_nearest() -> None:
    with raises(ConfigError, "unknown-key") as caught:
        parse_key("modle.hidden_size")
    assert "model" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("name", "text"),
    [("num_csx", "0,1"), ("num_csx", "1-4096"), ("num_csx", "many"), ("scaling", "strong,week")],
)
def test_keys_of_no_file_have_checked_values(name: str, text: str) -> None:
    with raises(ConfigError, "study-values-invalid"):
        Grid.parse({name: text})


@pytest.mark.parametrize(
    "typed",
    [
        {"batch_size": "1-10000000"},
        {"batch_size": "1-10000,20000-30000", "num_csx": "1-1000"},
        {"batch_size": "1-999999999999999999"},
    ],
    ids=["one-range", "a-product", "beyond-memory"],
)
def test_too_many_points_are_refused_with_their_number(typed: dict[str, str]) -> None:
    """They are counted, not built."""
    with raises(ConfigError, "study-too-large") as caught:
        Grid.parse(typed)
    assert f"{MOST_POINTS:,}" in (caught.value.rule or "")


def test_last_key_varies_fastest() -> None:
    grid = Grid.of({"system": ["CS-2", "CS-3"], "num_csx": [1, 2]})
    assert grid.size_text == "2 system x 2 num_csx = 4 points"
    assert [list(point.values()) for point in grid.points()] == [
        ["CS-2", 1], ["CS-2", 2], ["CS-3", 1], ["CS-3", 2],
    ]  # fmt: skip


def test_machine_keys_lie_in_the_system_that_is_named() -> None:
    """Whatever the order in which they are given; the given data keeps its own values."""
    changes = {parse_key("machine.system.clock_hz"): 10**9, parse_key("system"): "CS-3"}
    data = {"machine": {"swarmx": {"fan_out": 2}}}
    assert with_machine(data, changes) == {
        "machine": {"swarmx": {"fan_out": 2}, "system": {"name": "CS-3", "clock_hz": 10**9}}
    }
    assert data == {"machine": {"swarmx": {"fan_out": 2}}}
