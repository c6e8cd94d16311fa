"""The trace that a command was asked for."""

from pathlib import Path

import pytest

from tests.support.errors import raises
from tests.support.reports.traces import read_trace
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.cli.arguments import parse_arguments
from waferstream.core.errors import ConfigError
from waferstream.training.trace_request import TraceRequest


def requested(*flags: str) -> TraceRequest | None:
    nowhere = Path("nowhere")
    return parse_arguments(["-p", "params.yaml", *flags], home=nowhere, cwd=nowhere).trace


def test_flags_name_the_file_and_its_limit() -> None:
    assert requested() is None
    assert requested("--trace=t.json") == TraceRequest(Path("t.json"))
    assert requested("--trace=t.json", "--trace_limit=9") == TraceRequest(Path("t.json"), 9)


def test_a_limit_needs_a_trace() -> None:
    with pytest.raises(SystemExit):
        requested("--trace_limit=9")


def test_every_phase_of_a_run_has_a_file(tmp_path: Path) -> None:
    request = TraceRequest(tmp_path / "trace.json", 9)
    assert request.of_phase(2) == TraceRequest(tmp_path / "trace_2.json", 9)


def test_a_trace_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Before the run, which may take hours."""
    TraceRequest(tmp_path / "trace.json").check()
    for path in (tmp_path / "nowhere" / "trace.json", tmp_path):
        with raises(ConfigError, "trace-not-writable"):
            TraceRequest(path).check()
    with raises(ConfigError, "trace-limit-too-small"):
        TraceRequest(tmp_path / "trace.json", 0).check()


def test_a_run_that_fails_writes_the_steps_before_the_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log says where the trace is, and what it lacks."""
    flags = write_run(tmp_path, init__logging={"log_steps": 1}, init__loop={"max_steps": 3})
    path = tmp_path / "trace.json"
    words = [*flags, "--mode=train", f"--trace={path}", "--fault=csx-0@2:exception"]
    code, out, _ = run_here(words, capsys)
    assert code == 1
    assert [each.args["step"] for each in read_trace(path).of("emulated", "steps")] == [1]
    assert str(path) in out
    assert "WARNING: Not in the trace" in out
