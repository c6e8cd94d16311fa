"""``waferstream cluster``: systems, MemoryX groups, volumes and the worker cache."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import yaml

from appliance.jobs.job import Phase, Request
from appliance.jobs.store import JobStore
from appliance.site import SITE_DEFAULTS
from cstorch import distributed
from modelzoo.data.files.folders import cached
from tests.support.host.tools import rows, tool
from tests.support.nightly import nightly
from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main
from waferstream.core.units import format_bytes


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    """Return a store with one running job on two systems, and one that waits."""
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "state"))
    found = JobStore()
    job = found.submit("execute", "wflow-1", Request(num_csx=2, labels={"team": "a"}))
    found.move(job.name, Phase.RUNNING)
    found.submit("execute", "wflow-2", Request(num_csx=4))
    return found


@pytest.fixture
def machine(tmp_path: Path) -> str:
    """Return the file of a cluster of three CS-3 with two MemoryX groups."""
    sections = {
        "machine": {"system": "CS-3"},
        "runtime": {"queue": {"systems": 3, "memoryx_groups": 2}},
    }
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(sections))
    return str(tmp_path / "cluster.yaml")


def test_nodes_are_the_host_and_the_systems(
    machine: str, store: JobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A system shows the job that holds it, with its labels."""
    host, *systems = rows(capsys, "cluster", "nodes", "--cluster", machine)
    name = store.jobs()[0].name
    assert (host["NAME"], host["JOBIDS"], host["STATE"]) == (socket.gethostname(), name, "ok")
    assert host["MEM"].endswith("%")
    assert [(each["IN-USE"], each["JOBIDS"]) for each in systems] == [
        ("yes", name),
        ("yes", name),
        ("no", ""),
    ]
    assert {each["ROLE"] for each in systems} == {"system (CS-3)"}
    assert systems[0]["LABELS"] == "team=a"


def test_node_groups_show_their_jobs(
    machine: str, store: JobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training takes one MemoryX group."""
    groups = rows(capsys, "cluster", "nodegroups", "--cluster", machine)
    assert [each["JOBID"] for each in groups] == [store.jobs()[0].name, ""]
    assert groups[0]["MEMORY"] == format_bytes(36 * 10**12)


def test_without_a_queue_systems_are_those_of_the_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No number bounds them."""
    monkeypatch.chdir(tmp_path)
    assert len(rows(capsys, "cluster", "nodes")) == 3
    assert len(rows(capsys, "cluster", "nodegroups")) == 1


def test_volumes_are_those_of_the_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is missing can be seen."""
    site = {"mount_dirs": [str(tmp_path), str(tmp_path / "missing")]}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(site))
    monkeypatch.setenv(SITE_DEFAULTS, str(tmp_path / "site.yaml"))
    found = {row["PATH"]: row["READABLE"] for row in rows(capsys, "cluster", "volumes")}
    assert found == {"/": "yes", str(tmp_path): "yes", str(tmp_path / "missing"): "no"}


def test_worker_cache_is_shown_and_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "WORKER_CACHE_ROOT", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.h5").write_bytes(bytes(5000))
    copy = Path(cached(str(tmp_path / "data")))
    (shown,) = rows(capsys, "cluster", "worker-cache")
    assert shown["USED"] != "0 B"
    tool(capsys, "cluster", "clear-worker-cache")
    assert not copy.exists()


def test_plan_shows_the_roles_of_each_host(
    machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Systems stand beside their switch; the program's host has everything else."""
    words = ("--cluster", machine, "--num_csx", "5", "--hosts", "3x2")
    first, second, third = rows(capsys, "cluster", "plan", *words)
    assert (first["COORDINATOR"], first["WORKERS"]) == ("crd-0", "wrk-0")
    assert first["MEMORYX"].startswith("wgt-0")
    assert [each["CSX"] for each in (first, second, third)] == [
        "csx-0,csx-1",
        "csx-2,csx-3",
        "csx-4",
    ]
    assert [each["SWARMX"] for each in (first, second, third)] == ["br-0,br-1", "br-2", "br-3"]


def test_plan_shows_the_memory_that_each_host_needs(
    machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The weights lie on the program's host; each host has the activations of its systems."""
    write_run(tmp_path)
    params = str(tmp_path / "params.yaml")
    words = ("--cluster", machine, "--num_csx", "3", "--hosts", "2x2", "--params", params)
    first, second = rows(capsys, "cluster", "plan", *words)
    assert first["FREE"] == second["FREE"] == first["FITS"] == ""
    assert float(first["NEEDS"].split()[0]) > 0
    assert first["NEEDS"] != second["NEEDS"]
    assert (first["LOADING"] == "0 B", second["LOADING"]) == (False, "0 B")


@pytest.mark.parametrize(("gib", "fits"), [(0, "no"), *nightly((1, "yes"))])
def test_plan_says_whether_simulated_hosts_have_the_memory(
    gib: int, fits: str, machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path)
    params = str(tmp_path / "params.yaml")
    words = ("--cluster", machine, "--hosts", f"1x1x{gib}", "--params", params)
    assert main(["cluster", "plan", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    (host,) = json.loads(out)
    assert (host["FREE"], host["FITS"]) == (format_bytes(gib << 30), fits)
    assert ("remedy: " in err) == (fits == "no")
    assert "SPREAD" not in err


@pytest.mark.parametrize("hosts", ["3", "0x4", "10001x4", "3x4x5x6", "3x-4", "axb"])
def test_plan_refuses_hosts_that_it_cannot_parse(hosts: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["cluster", "plan", "--hosts", hosts])
    assert stopped.value.code == 2


@pytest.mark.parametrize("num_csx", [0, -1, 2049])
def test_plan_refuses_a_number_of_systems(
    num_csx: int, machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--cluster", machine, f"--num_csx={num_csx}", "--hosts", "3x2")
    assert "[out-of-range]" in tool(capsys, "cluster", "plan", *words, code=1)


def test_plan_refuses_hosts_that_are_too_few(
    machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--cluster", machine, "--num_csx", 7, "--hosts", "3x2")
    assert "[too-few-cpus]" in tool(capsys, "cluster", "plan", *words, code=1)
