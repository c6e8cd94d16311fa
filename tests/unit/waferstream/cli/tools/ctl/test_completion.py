"""A shell completes commands, flags, values, keys and names of jobs."""

from __future__ import annotations

import pytest

from tests.support.host.tools import tool
from tests.support.management.embedded import Runs
from waferstream.cli.main import main


def completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> list[str]:
    """Return what bash is told of the last word."""
    monkeypatch.setenv("_WAFERSTREAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["waferstream", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert main([]) == 0
    monkeypatch.delenv("_WAFERSTREAM_COMPLETE")
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ct"], ["ctl"]),
        (["trai"], ["train"]),
        (["ctl", "get", "jo"], ["job", "jobs"]),
        (["ctl", "get", "jobs", "--wat"], ["--watch"]),
        (["ctl", "job", "set-priority", "x", "p1"], ["p1"]),
        (["ctl", "get", "job", "x", "--output", "y"], ["yaml"]),
        (["train", "p.yaml", "--num_c"], ["--num_csx"]),
        (["train", "p.yaml", "--machine.swarmx.f"], ["--machine.swarmx.fan_out"]),
        (["simulate", "p.yaml", "--loop.max_s"], ["--loop.max_steps"]),
        (["fit", ""], []),
    ],
)
def test_words_are_completed(
    words: list[str],
    found: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert completed(capsys, monkeypatch, *words) == found


def test_names_of_jobs_are_completed(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = runs.submit()
    name = runs.start(workflow)
    assert completed(capsys, monkeypatch, "ctl", "cancel", "ws") == [name]
    assert completed(capsys, monkeypatch, "ctl", "explain", "wf") == [workflow.name]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_a_shell_is_printed(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the shell which has started the command."""
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: (shell, f"/bin/{shell}"))
    with pytest.raises(SystemExit) as ended:
        main(["--show-completion"])
    assert ended.value.code == 0
    assert "_WAFERSTREAM_COMPLETE" in capsys.readouterr().out
    assert "complete -o default" in tool(capsys, "ctl", "completion")
