"""``waferstream ctl``: systems, MemoryX groups and sessions, and who holds them."""

from __future__ import annotations

import socket

import pytest

from tests.support.host.tools import rows, tool
from tests.support.management.embedded import Runs


def test_nodes_are_the_host_and_the_systems(
    queued_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    """A system shows the job that holds it, with its labels."""
    name = queued_runs.queue(queued_runs.submit(num_csx=2, labels={"team": "a"}))
    host, *systems = rows(capsys, "ctl", "get", "cluster")
    assert (host["NAME"], host["JOBIDS"], host["STATE"]) == (socket.gethostname(), name, "ok")
    assert host["MEM"].endswith("%")
    assert [(each["IN-USE"], each["JOBIDS"]) for each in systems] == [
        ("yes", name),
        ("yes", name),
        ("no", ""),
    ]
    assert {each["ROLE"] for each in systems} == {"system (CS-3)"}
    assert systems[0]["LABELS"] == "team=a"


def test_node_groups_show_their_jobs(queued_runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """A training takes one MemoryX group."""
    name = queued_runs.queue(queued_runs.submit(num_csx=2))
    groups = rows(capsys, "ctl", "get", "nodegroups")
    assert [each["JOBID"] for each in groups] == [name, ""]
    assert {each["MEMORY"] for each in groups} == {"regular"}


def test_without_a_queue_systems_are_those_of_the_jobs(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    """No number bounds them."""
    name = runs.start(runs.submit(num_csx=4, machine="4 x CS-2"))
    _, systems = rows(capsys, "ctl", "get", "cluster")
    assert (systems["NAME"], systems["JOBIDS"]) == ("4 x CS-2", name)


def test_drained_node_takes_no_new_job(
    queued_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "drained" in tool(capsys, "ctl", "node", "drain", "system-0")
    name = queued_runs.queue(queued_runs.submit(num_csx=3))
    listed = {row["NAME"]: row for row in rows(capsys, "ctl", "get", "cluster")}
    assert (listed["system-0"]["STATE"], listed["system-1"]["IN-USE"]) == ("drained", "no")
    tool(capsys, "ctl", "node", "restore", "system-0")
    tool(capsys, "ctl", "node", "taint", "group-1")
    listed = {row["NAME"]: row for row in rows(capsys, "ctl", "get", "cluster")}
    assert {listed[f"system-{index}"]["JOBIDS"] for index in range(3)} == {name}
    assert rows(capsys, "ctl", "get", "nodegroups")[1]["STATE"] == "tainted"
    assert "[unknown-node]" in tool(capsys, "ctl", "node", "drain", "system-9", code=1)


def test_job_keeps_a_node_that_is_drained(
    queued_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs to its end."""
    name = queued_runs.queue(queued_runs.submit(num_csx=1))
    tool(capsys, "ctl", "node", "drain", "system-0")
    other = queued_runs.queue(queued_runs.submit(num_csx=2))
    listed = {row["NAME"]: row for row in rows(capsys, "ctl", "get", "cluster")}
    assert [listed[f"system-{index}"]["JOBIDS"] for index in range(3)] == [name, other, other]


def test_session_has_its_part_of_the_inventory(
    queued_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--systems", 2, "--users", "ann", "team-b")
    assert "session/lab was created" in tool(capsys, "ctl", "session", "create", "lab", *words)
    rest, lab = rows(capsys, "ctl", "get", "sessions")
    assert (rest["NAME"], rest["SYSTEMS"], rest["NODEGROUPS"]) == ("default", "1", "1")
    assert (lab["SYSTEMS"], lab["NODEGROUPS"], lab["USERS"]) == ("2", "1", "ann,team-b")
    assert "[name-taken]" in tool(capsys, "ctl", "session", "create", "lab", code=1)
    tool(capsys, "ctl", "session", "resize", "lab", "--systems", 1)
    assert rows(capsys, "ctl", "get", "sessions")[1]["USERS"] == "ann,team-b"
    refused = tool(capsys, "ctl", "session", "resize", "lab", "--systems", 4, code=1)
    assert "[session-too-large]" in refused
    assert "[unknown-session]" in tool(capsys, "ctl", "session", "resize", "labs", code=1)
    tool(capsys, "ctl", "session", "delete", "lab")
    assert len(rows(capsys, "ctl", "get", "sessions")) == 1
