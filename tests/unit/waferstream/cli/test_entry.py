"""The entry point of the command."""

from __future__ import annotations

import atexit
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from waferstream.cli.entry import run

PROGRAM = """
import atexit, signal, sys, types
from waferstream.host.interrupts import raising

def command(words, home):
    with raising():
        print("ready", flush=True)
        signal.pause()

sys.modules["waferstream.cli.main"] = main = types.ModuleType("waferstream.cli.main")
main.command = command
from waferstream.cli.entry import run
code = run()
atexit.register(print, "cleaned up")
sys.exit(code)
"""
"""The entry point, with a command that waits for a signal."""


@pytest.fixture
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what is for the end of a process: handlers of signals, and the signal it dies of."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(atexit, "register", lambda _: None)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Interrupting(ModuleType):
    """A module whose import the user interrupts."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


@pytest.mark.usefixtures("_in_this_process")
def test_interrupt_during_import_has_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds where the kernel drops the signal: in the first process of a container."""
    monkeypatch.setitem(sys.modules, "waferstream.cli.main", Interrupting("waferstream.cli.main"))
    assert run() == 130


@pytest.mark.usefixtures("hang_up_ends")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_process_dies_of_its_signal_when_all_is_cleaned_up(number: signal.Signals) -> None:
    """Which runs at the exit of the process; supervisors see the signal, not an exit code."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "cleaned up\n"
    assert process.returncode == -number


def test_interrupt_ends_the_loop_of_a_shell() -> None:
    """Ctrl-C goes to both; the shell goes on after a program that exits, whatever its code."""
    loop = 'for each in 1 2; do "$0" -c "$1"; done'
    command = ["bash", "-c", loop, sys.executable, PROGRAM]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        os.killpg(shell.pid, signal.SIGINT)
        assert shell.stdout.read() == "cleaned up\n"
    assert shell.returncode == -signal.SIGINT


@pytest.mark.usefixtures("_in_this_process")
def test_process_without_standard_streams_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that a service starts: what it prints goes nowhere."""
    names = ("stdin", "stdout", "stderr")
    for name in names:
        monkeypatch.setattr(sys, name, None)
        monkeypatch.setattr(sys, f"__{name}__", None)
    monkeypatch.setitem(sys.modules, "waferstream.cli.main", Interrupting("waferstream.cli.main"))
    run()
    assert sys.stdin.read() == ""
    for name in names:
        stream = getattr(sys, name)
        assert name == "stdin" or stream.write("nowhere")
        stream.close()


_CHILD = """
import subprocess, sys, types

def command(words, home):
    if None in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        return 1
    return subprocess.call([sys.executable, "-c", "import os; [os.fstat(n) for n in range(3)]"])

sys.modules["waferstream.cli.main"] = main = types.ModuleType("waferstream.cli.main")
main.command = command
from waferstream.cli.entry import run
sys.exit(run())
"""


def test_children_of_a_process_without_standard_streams_have_some() -> None:
    """Else the first files that they open take their numbers."""
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", _CHILD]
    assert subprocess.run(shell, check=False).returncode == 0


@pytest.mark.usefixtures("_in_this_process")
def test_output_in_a_poor_encoding_has_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of files may have any character."""
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "ascii"))
    monkeypatch.setitem(sys.modules, "waferstream.cli.main", Interrupting("waferstream.cli.main"))
    run()
    print("caf\u00e9", flush=True)
    assert printed.getvalue() == b"caf\\xe9\n"
