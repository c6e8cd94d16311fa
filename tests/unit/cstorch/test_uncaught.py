"""An error of this project ends a program with its own lines and one message."""

from __future__ import annotations

import sys

import pytest

from cstorch.uncaught import show_briefly
from waferstream.core.errors import ConfigError


def shown(error: Exception, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the hook of the process prints beside, or before, an earlier one."""
    earlier: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda *_: earlier.append("earlier"))
    show_briefly()
    try:
        raise error
    except Exception as caught:
        sys.excepthook(type(caught), caught, caught.__traceback__)
    return "".join(earlier)


def test_error_of_this_project_is_told_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ConfigError("it must be other", code="not-allowed", remedy="change it")
    assert shown(error, monkeypatch) == ""
    told = capsys.readouterr().err
    assert "[not-allowed]" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("variable", [False, True])
def test_other_errors_and_asked_tracebacks_are_shown_as_before(
    monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    if variable:
        monkeypatch.setenv("WAFERSTREAM_TRACEBACK", "1")
    error = ConfigError("it must be other", code="not-allowed") if variable else ValueError()
    assert shown(error, monkeypatch) == "earlier"
