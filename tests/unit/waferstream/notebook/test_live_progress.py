"""One output of a cell follows the log of its training."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("IPython")

from waferstream.core.events import TrainProgress
from waferstream.notebook import live_progress
from waferstream.notebook.live_progress import shown_progress

LOG = logging.getLogger("waferstream")


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a cell shows."""
    found: list[Any] = []
    monkeypatch.setattr(
        live_progress, "publish_display_data", lambda data, **how: found.append((data, how))
    )
    return found


def progress(step: int, loss: float) -> TrainProgress:
    return TrainProgress(step, loss, 10.0, 10.0, 0.0, 0.0, 6500.0, "2 x CS-2")


def test_one_output_follows_the_log(published: list[Any], capsys: Any) -> None:
    LOG.info("before the cell, so that the logger has decided on this level already")
    with shown_progress():
        LOG.info("Compiling <the model>")
        LOG.warning("a warning")
        for step, loss in ((1, 3.0), (2, float("nan")), (3, 1.0)):
            LOG.info(progress(step, loss))
    texts = [data["text/plain"] for data, _ in published]
    pages = [data["text/html"] for data, _ in published]
    assert texts[0] == "Compiling <the model>"
    assert texts[-1].startswith("Finished | step 3 | loss 1 | ")
    assert "on 2 x CS-2" in texts[-1]
    assert [how["update"] for _, how in published] == [False, True, True, True, True]
    assert len({how["transient"]["display_id"] for _, how in published}) == 1
    assert "&lt;the model&gt;" in pages[0]
    assert 'points="0.0,0.0 480.0,120.0"' in pages[-1]
    assert "a warning" in capsys.readouterr().err
    assert not any(isinstance(each, live_progress.LiveProgress) for each in LOG.handlers)


@pytest.mark.parametrize(
    ("error", "word"), [(KeyboardInterrupt, "Interrupted"), (OSError, "Failed")]
)
def test_end_is_shown(published: list[Any], error: type[BaseException], word: str) -> None:
    with pytest.raises(error), shown_progress():
        raise error
    assert published[-1][0]["text/plain"] == word


def test_long_training_keeps_a_limited_number_of_points(published: list[Any]) -> None:
    with shown_progress():
        for step in range(900):  # twice as many points as are kept, and more
            LOG.info(progress(step, 1.0))
    drawn = published[-1][0]["text/html"].partition('points="')[2].partition('"')[0].split()
    assert len(drawn) <= 400
    assert drawn[0].startswith("0.0,")
