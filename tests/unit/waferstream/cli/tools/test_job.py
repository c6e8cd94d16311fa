"""``waferstream job``: the jobs of a run are listed, shown, labelled, cancelled and exported."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from appliance.jobs.job import Phase, Request
from appliance.jobs.owner import this_process
from appliance.jobs.store import JobStore
from tests.support.host.tools import rows, tool
from tests.support.runs.tiny_run import run_here, write_run


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    """Return an empty store, which commands use as well."""
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "state"))
    return JobStore()


def test_jobs_of_a_run_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training and evaluation are compiled, and one cluster executes both."""
    flags = write_run(tmp_path, init__loop={"max_steps": 1, "eval_frequency": 1, "eval_steps": 1})
    flags += ["--job_labels", "team=a", "--job_priority", "p1"]
    code, out, _ = run_here(flags, capsys)
    assert code == 0
    listed = rows(capsys, "job", "list", "-a", "-l", "team=a")
    kinds = [(row["TYPE"], row["PHASE"], row["PRIORITY"]) for row in listed]
    ended = ("SUCCEEDED", "P1 (199)")
    assert kinds == [("compile", *ended), ("execute", *ended), ("compile", *ended)]
    assert len({row["WORKFLOW"] for row in listed}) == 1
    assert listed[1]["SYSTEMS"] == "1 x CS-2"
    for row in listed:
        assert f"Job id: {row['NAME']}, workflow id: {row['WORKFLOW']}, " in out
    assert rows(capsys, "job", "list") == []
    assert rows(capsys, "job", "list", "-a", "-l", "team=b") == []


def test_failed_run_leaves_a_failed_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = write_run(tmp_path, init__optimizer={"AdamW": {"lr": 1e30}})
    code, _, err = run_here(flags, capsys)
    assert (code, "-not-finite]" in err) == (1, True)
    (execute,) = (row for row in rows(capsys, "job", "list", "-a") if row["TYPE"] == "execute")
    assert execute["PHASE"] == "FAILED"
    assert "-not-finite]" in execute["REASON"]


def test_job_is_shown_labelled_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], store: JobStore
) -> None:
    name = store.submit("execute", "wflow-1", Request(labels={"a": "1"})).name
    assert f"job/{name} was patched" in tool(capsys, "job", "label", name, "b=2", "a-")
    assert yaml.safe_load(tool(capsys, "job", "get", name, "-o", "yaml"))["request"]["labels"] == {
        "b": "2"
    }
    assert json.loads(tool(capsys, "job", "get", name, "-ojson"))["name"] == name
    assert name in tool(capsys, "job", "get", name)
    assert "[label-form]" in tool(capsys, "job", "label", name, "c", code=1)
    (tmp_path / "state" / "jobs" / name / "job.log").write_text("line")
    archive = tool(capsys, "job", "log-export", name, "-o", tmp_path).strip()
    with tarfile.open(archive) as packed:
        assert {"./job.log", "./job.json"} <= set(packed.getnames())


def test_priority_is_that_of_the_workflow(
    capsys: pytest.CaptureFixture[str], store: JobStore
) -> None:
    names = [store.submit("execute", flow, Request()).name for flow in ("w", "w", "other")]
    said = tool(capsys, "job", "set-priority", names[0], "p1")
    assert said.strip() == f"successfully updated {names[0]} job priority to p1"
    assert [job.request.priority for job in store.jobs()] == [199, 199, 299]
    store.move(names[0], Phase.SUCCEEDED)
    assert "[job-has-ended]" in tool(capsys, "job", "set-priority", names[0], "p3", code=1)


@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])
def test_cancel_interrupts_the_program(
    capsys: pytest.CaptureFixture[str], store: JobStore, handler: str
) -> None:
    """Also one that a shell has started in the background, where Ctrl-C is ignored."""
    name = store.submit("execute", "w", Request()).name
    waits = f"import signal; signal.signal(signal.SIGINT, signal.{handler})\n"
    waits += "print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        stat = Path(f"/proc/{program.pid}/stat").read_text()
        ticks = int(stat.rpartition(")")[2].split()[19])
        owner = this_process().model_copy(update={"pid": program.pid, "started_ticks": ticks})
        store.change(name, lambda job: job.model_copy(update={"owner": owner}))
        assert "Job canceled successfully" in tool(capsys, "job", "cancel", name)
        assert program.wait(timeout=30) != 0
    assert store.find(name).phase is Phase.CANCELLED
    assert "[job-has-ended]" in tool(capsys, "job", "cancel", name, code=1)
    assert "[unknown-job]" in tool(capsys, "job", "cancel", "wsjob-0", code=1)
