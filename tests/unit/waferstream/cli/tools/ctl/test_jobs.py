"""``waferstream ctl``: jobs are listed, shown, explained, labelled and cancelled."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.support.host.tools import rows, tool
from tests.support.management.embedded import Runs
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.cli.main import main
from waferstream.host.processes import started_ticks
from waferstream.management.manager.embedded import this_process
from waferstream.management.model import event
from waferstream.management.model.job import Phase

VENDOR = ("SESSION", "NAME", "TYPE", "PRIORITY", "AGE", "DURATION", "PHASE", "SYSTEMS", "USER",
          "LABELS", "WORKFLOW", "DASHBOARD")  # fmt: skip


def test_jobs_of_a_run_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training and evaluation are compiled, and one cluster executes both."""
    flags = write_run(tmp_path, init__loop={"max_steps": 1, "eval_frequency": 1, "eval_steps": 1})
    flags += ["--job_labels", "team=a", "--job_priority", "p1"]
    code, out, _ = run_here(flags, capsys)
    assert code == 0
    listed = rows(capsys, "ctl", "get", "jobs", "-a", "-l", "team=a")
    kinds = [(row["TYPE"], row["PHASE"], row["PRIORITY"]) for row in listed]
    ended = ("SUCCEEDED", "P1 (199)")
    assert kinds == [("compile", *ended), ("execute", *ended), ("compile", *ended)]
    assert len({row["WORKFLOW"] for row in listed}) == 1
    assert listed[1]["SYSTEMS"] == "1 x CS-2"
    for row in listed:
        assert tuple(row)[: len(VENDOR)] == VENDOR
        assert f"Job id: {row['NAME']}, workflow id: {row['WORKFLOW']}, " in out
    assert rows(capsys, "ctl", "get", "jobs") == []
    assert rows(capsys, "ctl", "get", "jobs", "-a", "-l", "team=b") == []


def test_failed_run_leaves_a_failed_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = write_run(tmp_path, init__optimizer={"AdamW": {"lr": 1e30}})
    code, _, err = run_here(flags, capsys)
    assert (code, "-not-finite]" in err) == (1, True)
    listed = rows(capsys, "ctl", "get", "jobs", "-a")
    (execute,) = (row for row in listed if row["TYPE"] == "execute")
    assert execute["PHASE"] == "FAILED"
    assert "-not-finite]" in execute["REASON"]


def test_waiting_job_says_why_and_when(
    queued_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = queued_runs.submit(num_csx=3), queued_runs.submit(num_csx=2)
    holder, waiter = queued_runs.queue(first), queued_runs.queue(second)
    running, waiting = rows(capsys, "ctl", "get", "jobs")
    assert (running["NAME"], running["SYSTEMS"]) == (holder, "system-[0-2]")
    assert (waiting["NAME"], waiting["PHASE"]) == (waiter, "QUEUED")
    assert waiting["REASON"]
    (explained,) = rows(capsys, "ctl", "explain", waiter)
    assert (explained["workflow"], explained["place"]) == (second.name, 1)
    assert explained["reason"] == waiting["REASON"]
    assert "place in the queue: 1" in tool(capsys, "ctl", "explain", waiter)
    assert "does not wait" in tool(capsys, "ctl", "explain", holder)


def test_job_is_shown_and_labelled(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    name = runs.start(runs.submit(labels={"a": "1"}))
    assert f"job/{name} was patched" in tool(capsys, "ctl", "label", name, "b=2", "a-")
    shown = yaml.safe_load(tool(capsys, "ctl", "get", "job", name, "-oyaml"))
    assert shown["workflow"]["submission"]["labels"] == {"b": "2"}
    assert shown["conditions"][-1]["phase"] == "RUNNING"
    assert json.loads(tool(capsys, "ctl", "get", "job", name, "-ojson"))["name"] == name
    assert name in tool(capsys, "ctl", "get", "job", name)
    workflow = json.loads(tool(capsys, "ctl", "get", "job", shown["workflow"]["name"], "--json"))
    assert [job["name"] for job in workflow["jobs"]] == [name]
    assert "job/" in tool(capsys, "ctl", "label", "job", name, "c=3")  # as the vendor's command
    assert "[label-form]" in tool(capsys, "ctl", "label", name, "c", code=1)
    assert "[label-form]" in tool(capsys, "ctl", "label", name, code=1)


def test_priority_is_that_of_the_workflow(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    workflow, other = runs.submit(), runs.submit()
    names = runs.job(workflow, "compile"), runs.job(workflow)
    runs.job(other)
    said = tool(capsys, "ctl", "job", "set-priority", names[0], "p1")
    assert said.strip() == f"successfully updated {names[0]} job priority to p1"
    listed = rows(capsys, "ctl", "get", "jobs")
    assert [row["PRIORITY"] for row in listed] == ["P1 (199)", "P1 (199)", "P2 (299)"]
    runs.note(workflow, event.Ended(result=Phase.SUCCEEDED))
    refused = tool(capsys, "ctl", "job", "set-priority", names[0], "p3", code=1)
    assert "[job-has-ended]" in refused


@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])
def test_cancel_interrupts_the_program(
    capsys: pytest.CaptureFixture[str], runs: Runs, handler: str
) -> None:
    """Also one that a shell has started in the background, where Ctrl-C is ignored."""
    waits = f"import signal; signal.signal(signal.SIGINT, signal.{handler})\n"
    waits += "print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        ticks = started_ticks(program.pid)
        process = this_process().model_copy(update={"pid": program.pid, "started_ticks": ticks})
        workflow = runs.submit(process)
        name = runs.start(workflow)
        assert "Job canceled successfully" in tool(capsys, "ctl", "cancel", "job", name)
        assert program.wait(timeout=30) != 0
    (row,) = rows(capsys, "ctl", "get", "jobs", "-a")
    assert row["PHASE"] == "CANCELLED"
    assert "[job-has-ended]" in tool(capsys, "ctl", "cancel", name, code=1)
    assert "[unknown-job]" in tool(capsys, "ctl", "cancel", "wsjob-0", code=1)


def test_list_is_shown_again_when_it_changes(
    capsys: pytest.CaptureFixture[str], runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with Ctrl-C."""
    begins: Callable[[], object] = lambda: runs.start(runs.submit(labels={"new": "1"}))  # noqa: E731
    changes = iter([begins, list])

    def wait(_seconds: float) -> None:
        change = next(changes, None)
        if change is None:
            raise KeyboardInterrupt
        change()

    # of that module alone: threads of other tests sleep, too
    clock = SimpleNamespace(sleep=wait, time=time.time)
    monkeypatch.setattr("waferstream.cli.tools.ctl.jobs.time", clock)
    assert main(["ctl", "get", "jobs", "--watch"]) == 130
    out = capsys.readouterr().out
    assert (out.count("(none)"), out.count("new=1")) == (1, 1)
