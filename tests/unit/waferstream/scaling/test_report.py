"""The scaling experiment in words and rows."""

from tests.support.summaries import DIGEST, summary, with_digest
from waferstream.reports.scaling import Scaling
from waferstream.scaling.report import COLUMNS, rows, table, title, verdict

SCALING = Scaling.of([summary(1), summary(4, reduce_ps=2_000_000)])


def test_a_row_says_pace_efficiency_step_and_causes() -> None:
    """Four systems compute 2 us and wait 2 us for the reduce, so they reach half the ideal."""
    _, row = rows(SCALING)
    assert row == (
        "4",
        "4,000,000",
        "50.0%",
        "4.00 us",
        "50.0%",
        "reduce 50.0%",
        "32",
        DIGEST[:12],
    )


def test_the_table_is_aligned() -> None:
    """Every line is as wide as the header and ends every column at the same place."""
    header, *lines = table(SCALING).splitlines()
    assert header.split("  ")[0].strip() == COLUMNS[0]
    assert {len(line) for line in lines} == {len(header)}


def test_the_title_says_what_was_trained() -> None:
    """Model, size, batch and steps."""
    assert title(SCALING) == "gpt2, 3.3 million parameters, batch 16, 10 steps"


def test_the_verdict_is_plain() -> None:
    """Yes or no."""
    assert verdict(SCALING).startswith("One answer: yes. All 2 runs")
    other = Scaling.of([summary(1), with_digest(summary(2), "cd")])
    assert verdict(other).startswith("One answer: NO.")
