"""The entry point of the command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from waferstream.cli.entry import run


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Set the handlers of signals back, which the process keeps to its end."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Interrupting(ModuleType):
    """A module whose import the user interrupts."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


def test_interrupt_during_import_has_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "waferstream.cli.main", Interrupting("waferstream.cli.main"))
    assert run() == 130


def test_process_without_standard_streams_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that a service starts: what it prints goes nowhere."""
    names = ("stdin", "stdout", "stderr")
    for name in names:
        monkeypatch.setattr(sys, name, None)
    monkeypatch.setitem(sys.modules, "waferstream.cli.main", Interrupting("waferstream.cli.main"))
    run()
    assert sys.stdin.read() == ""
    for name in names:
        stream = getattr(sys, name)
        assert name == "stdin" or stream.write("nowhere")
        stream.close()
