"""What a program shows of an error in its traced step."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest
import torch
from torch import nn

import cstorch
from cstorch.tracing.brief_errors import show_briefly
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, losses, running_backend, training_step
from waferstream.core.errors import ApplianceCompilationError, ConfigError
from waferstream.host.tracebacks import VARIABLE


class Mistaken(nn.Module):
    """A model with a mistake below its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.loss(x, y)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.layer(x.view(3, -1)) - y).square().mean()


def lines_of_error() -> list[str]:
    """Return the traceback of a mistake."""
    with running_backend() as backend:
        cstorch.compile(Mistaken(), backend)
        with raises(ApplianceCompilationError, "traced-step-failed") as caught:
            losses(training_step(backend), executor(1))
    return "".join(traceback.format_exception(caught.value)).splitlines()


def test_traceback_ends_in_the_lines_of_the_program() -> None:
    """Those of the tracer, of torch and of Python's library are left out below the call."""
    lines = lines_of_error()
    files = [Path(line.split('"')[1]).name for line in lines if line.strip().startswith('File "')]
    assert len(lines) < 50
    assert files[-4:] == ["brief_errors.py", "cstorch_program.py", *[Path(__file__).name] * 2]
    assert any("x.view(3, -1)" in line for line in lines)


def test_variable_shows_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    brief = lines_of_error()
    assert VARIABLE in brief[-1]
    monkeypatch.setenv(VARIABLE, "1")
    assert len(lines_of_error()) > 3 * len(brief)


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
