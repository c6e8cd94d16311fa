"""The file to which all runs of a model append."""

from pathlib import Path

from waferstream.reports.run.history import Curves, HistoryFile


def losses(*steps: int, loss: float = 2.0) -> list[dict[str, float]]:
    """Return the lines of some steps."""
    return [{"step": step, "loss": loss} for step in steps]


def test_runs_that_follow_each_other_are_one_curve(tmp_path: Path) -> None:
    """With the evaluations between; a line about a run is no point."""
    file = HistoryFile(tmp_path / "history.jsonl")
    assert file.curves() == Curves()
    file.append([{"run": "a", "num_csx": 2}, *losses(1, 2), {"step": 2, "eval_loss": 1.5}])
    file.append([{"run": "b", "num_csx": 4}, *losses(3, loss=1.0)])
    assert file.curves() == Curves(((1, 2.0), (2, 2.0), (3, 1.0)), ((2, 1.5),))


def test_a_run_that_goes_back_replaces_the_later_steps(tmp_path: Path) -> None:
    """Those of training and of evaluation; an evaluation alone replaces its own step only."""
    file = HistoryFile(tmp_path / "history.jsonl")
    file.append([*losses(1, 2), {"step": 2, "eval_loss": 1.5}, *losses(3, 4)])
    file.append([{"step": 4, "eval_loss": 1.25}, {"step": 2, "eval_loss": 1.0}])
    assert file.curves().evaluation == ((2, 1.0), (4, 1.25))
    file.append(losses(3, loss=1.0))
    assert file.curves() == Curves(((1, 2.0), (2, 2.0), (3, 1.0)), ((2, 1.0),))


def test_a_line_that_a_full_disk_has_cut_costs_no_other(tmp_path: Path) -> None:
    """Neither one before nor one after it; a loss may be no number."""
    file = HistoryFile(tmp_path / "history.jsonl")
    file.append(losses(1))
    with file.path.open("ab") as cut:
        cut.write(b'{"step": 2, "lo')
    file.append([{"step": 3, "loss": float("inf")}])
    assert file.curves().train == ((1, 2.0), (3, float("inf")))
