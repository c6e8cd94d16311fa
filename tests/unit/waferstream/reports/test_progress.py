"""Progress lines are the vendor's, to the letter, with the emulated rate behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.reports.progress import ProgressBar, eval_line, train_line


def line(**changes: float | bool) -> str:
    """The vendor's example line, with changes."""
    values = {
        "step": 50,
        "loss": 7.671264,
        "rate": 31.97,
        "global_rate": 31.97,
        "loop_remaining_s": 4841.0,
        "remaining_s": 4841.0,
        "emulated_rate": 123456.789,
        **changes,
    }
    return train_line(**values, machine="4 x CS-2")  # type: ignore[arg-type]


def test_a_training_line_is_the_vendors_followed_by_the_emulated_rate() -> None:
    """Character for character the line of the vendor's logs, then our own field."""
    assert line() == (
        "| Train Device=CSX, Step=50, Loss=7.67126, Rate=31.97 samples/sec, "
        "GlobalRate=31.97 samples/sec, LoopTimeRemaining=1:20:41, TimeRemaining=1:20:41, "
        "EmulatedRate=123456.79 samples/sec (4 x CS-2)"
    )


def test_an_evaluation_line_is_the_vendors() -> None:
    """Global step, batch, loss and rates, in this order."""
    written = eval_line(global_step=400, batch=20, loss=5.1, rate=40.0, global_rate=0.04567)
    assert written == (
        "| Eval Device=CSX, GlobalStep=400, Batch=20, Loss=5.10000, "
        "Rate=40.00 samples/sec, GlobalRate=0.0457 samples/sec"
    )


@pytest.mark.parametrize(
    ("rate", "written"), [(1.0, "1.00"), (0.98765, "0.988"), (0.0123456, "0.0123"), (0.0, "0")]
)
def test_rates_below_one_keep_three_significant_digits(rate: float, written: str) -> None:
    """A slow run still shows its pace."""
    assert f", Rate={written} samples/sec" in line(rate=rate)


def test_a_bound_on_the_remaining_time_is_marked() -> None:
    """Stages without an estimate turn the equals sign into a greater-than sign."""
    assert ", TimeRemaining>1:20:41," in line(remaining_is_bound=True)


@given(st.integers(0, 10**7))
def test_durations_are_hours_minutes_seconds(duration_s: int) -> None:
    """Reading a duration back gives its seconds, also beyond a day."""
    written = line(loop_remaining_s=float(duration_s)).split("LoopTimeRemaining=")[1].split(",")[0]
    hours, minutes, seconds = written.split(":")
    assert len(minutes) == len(seconds) == 2
    assert int(hours) * 3600 + int(minutes) * 60 + int(seconds) == duration_s


def test_without_a_terminal_there_are_lines_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """What goes into a log file is the lines alone."""
    bar = ProgressBar("Train", total=10, done=2)
    bar.advance()
    bar.write("a line")
    bar.close()
    captured = capsys.readouterr()
    assert captured.out == "a line\n"
    assert captured.err == ""
