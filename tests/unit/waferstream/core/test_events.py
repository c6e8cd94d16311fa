"""The lines of events, and the patterns by which another process finds them."""

from __future__ import annotations

import logging

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.coordinator.commands import Run
from waferstream.core.events import (
    ClusterReplaced,
    Duration,
    EvalProgress,
    Milestone,
    Recovered,
    TrainProgress,
)
from waferstream.core.program.program import ProgramKind

TOOK = Duration(7.04, {"ending": 0.1, "starting": 6.94})


def line(**changes: float | bool) -> str:
    """Return the vendor's example line, with changes."""
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
    return str(TrainProgress(**values, machine="4 x CS-2"))  # type: ignore[arg-type]


def test_train_line_is_the_vendors_plus_emulated_rate() -> None:
    """The vendor's line character for character, then one field of our own."""
    assert line() == (
        "| Train Device=CSX, Step=50, Loss=7.67126, Rate=31.97 samples/sec, "
        "GlobalRate=31.97 samples/sec, LoopTimeRemaining=1:20:41, TimeRemaining=1:20:41, "
        "EmulatedRate=123456.79 samples/sec (4 x CS-2)"
    )


@example(100_000, 10.0, 1000.0, 36_000)
@given(
    st.integers(0, 10**5),
    st.floats(1e-3, 99.0),
    st.floats(1e-3, 1e4),
    st.integers(0, 359_999),
)
def test_plain_line_fits_a_terminal(step: int, loss: float, rate: float, left_s: int) -> None:
    progress = TrainProgress(step, loss, rate, rate, 0.0, float(left_s), 1000 * rate, "4 x CS-2")
    assert len(progress.plain) <= 80
    assert progress.plain.startswith(f"step {step:,}  loss {loss:.{5 if loss < 10 else 4}f}  ")


def test_eval_line_is_the_vendors() -> None:
    progress = EvalProgress(global_step=400, batch=20, loss=5.1, rate=40.0, global_rate=0.04567)
    assert str(progress) == (
        "| Eval Device=CSX, GlobalStep=400, Batch=20, Loss=5.10000, "
        "Rate=40.00 samples/sec, GlobalRate=0.0457 samples/sec"
    )


@pytest.mark.parametrize(
    ("rate", "written"), [(1.0, "1.00"), (0.98765, "0.988"), (0.0123456, "0.0123"), (0.0, "0")]
)
def test_train_line_keeps_three_digits_of_rates_below_one(rate: float, written: str) -> None:
    assert f", Rate={written} samples/sec" in line(rate=rate)


def test_train_line_marks_a_bound_on_the_remaining_time() -> None:
    assert ", TimeRemaining>1:20:41," in line(remaining_is_bound=True)


@given(st.integers(0, 10**7))
def test_train_line_writes_hours_minutes_and_seconds(duration_s: int) -> None:
    """Also beyond a day."""
    written = line(loop_remaining_s=float(duration_s)).split("LoopTimeRemaining=")[1].split(",")[0]
    hours, minutes, seconds = written.split(":")
    assert len(minutes) == len(seconds) == 2
    assert int(hours) * 3600 + int(minutes) * 60 + int(seconds) == duration_s


@pytest.mark.parametrize("loss", [7.671264, float("nan")])
def test_progress_is_found_in_a_log(loss: float) -> None:
    found = TrainProgress.PATTERN.search(f"INFO: {line(loss=loss)}")
    assert found is not None
    assert (int(found["step"]), found["loss"]) == (50, f"{loss:.5f}")
    assert TrainProgress.PATTERN.search(str(EvalProgress(400, 20, 5.1, 40.0, 0.04))) is None


def test_recovery_is_found_in_a_log() -> None:
    """That of another cluster with the steps that it repeated, that inside one with the step."""
    recovered = Recovered(TOOK, 7)
    assert str(recovered) == (
        "Recovery: recovered in 7.0 s (ending 0.1, starting 6.9); step 7 runs again"
    )
    again = Recovered.PATTERN.search(str(recovered))
    assert again is not None
    assert again["step"] == "7"
    assert Recovered.PATTERN.search(str(Recovered(TOOK, None))) is None
    replaced = ClusterReplaced(TOOK, 2, 60, str(Run(ProgramKind.TRAIN, 67, 68)))
    found = ClusterReplaced.PATTERN.search(str(replaced))
    assert found is not None
    assert found.groups() == ("60", "67")


def test_event_is_in_the_record_and_its_text_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("waferstream")
    with caplog.at_level("INFO", "waferstream"):
        log.info(Milestone.STARTED)
        log.info(Recovered(TOOK, 7))
    assert [record.msg for record in caplog.records] == [Milestone.STARTED, Recovered(TOOK, 7)]
    assert caplog.messages == [Milestone.STARTED.value, str(Recovered(TOOK, 7))]
