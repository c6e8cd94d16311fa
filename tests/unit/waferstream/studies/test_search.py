"""A search finds what trying everything finds, keeps its limits, and says what it tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.scaling.sweep import SimulationRequest
from waferstream.studies import search as module
from waferstream.studies.candidates import Goal, Objective, SearchResult, Space, batches_around
from waferstream.studies.grid import Grid
from waferstream.studies.running import run_study
from waferstream.studies.search import search
from waferstream.studies.text import search_text

REQUEST = SimulationRequest(token_budget=1e9)
SPACE = Space((8, 16), range(1, 7), Grid.of({"system": ["CS-2", "CS-3"]}))


def found(params_file: Path, goal: Goal, space: Space = SPACE) -> SearchResult:
    return search(params_file, {}, space, goal, REQUEST)


@pytest.mark.parametrize(
    ("objective", "column"),
    [("days", "training_days"), ("cost", "training_usd"), ("energy", "training_kwh")],
)
def test_search_finds_the_least_of_all(
    params_file: Path, objective: Objective, column: str
) -> None:
    """As a study of every micro-batch, whose rows are looked through by hand."""
    grid = Grid.of(
        {
            "system": ["CS-2", "CS-3"],
            "batch_size": [8, 16],
            "micro_batch_size": list(range(1, 17)),
            "num_csx": list(range(1, 7)),
        }
    )
    rows = run_study(params_file, grid, None, REQUEST).records
    least = min(float(str(row[column])) for row in rows if row["feasible"])
    goal = Goal(objective)
    result = found(params_file, goal)
    assert result.is_exhaustive
    assert goal.value(result.candidates[0].bill) == pytest.approx(least)
    assert result.records[0][column] == pytest.approx(least)


def test_large_space_is_searched_in_part_and_says_so(
    params_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = found(params_file, Goal("cost"))
    monkeypatch.setattr(module, "MOST_TRIED", 10)
    part = found(params_file, Goal("cost"))
    assert part.tried < whole.tried == part.possible
    assert part.candidates[0].record == whole.candidates[0].record
    assert "NOT exhaustive" in search_text(part)
    assert "all of them" in search_text(whole)


def test_limits_are_kept(params_file: Path) -> None:
    fastest = found(params_file, Goal("days")).candidates[0]
    limit = 0.9 * fastest.bill.footprint.usd
    result = found(params_file, Goal("days", most_usd=limit))
    assert all(each.bill.footprint.usd <= limit for each in result.candidates)
    assert result.exceeded["cost"] == result.tried - len(result.candidates) - sum(
        result.refused.values()
    )
    with raises(ConfigError, "search-without-result"):
        found(params_file, Goal("days", most_usd=1e-9))


def test_what_cannot_be_shared_is_counted(params_file: Path) -> None:
    result = found(params_file, Goal("days"), Space((2,), range(1, 5)))
    assert result.refused == {"batch-below-systems": 2}


def test_keys_of_the_model_are_no_choice() -> None:
    with raises(ConfigError, "search-key"):
        Space((8,), (1,), Grid.of({"model.hidden_size": [32, 64]}))


def test_batches_lie_around_the_stated_one() -> None:
    assert batches_around(8) == (2, 4, 8, 16, 32)
    assert batches_around(1) == (1, 2, 4)
