"""``waferstream cluster plan``: roles by host, and the memory that they need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.host.tools import rows, tool
from tests.support.nightly import nightly
from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main
from waferstream.core.units import format_bytes


@pytest.fixture
def machine(tmp_path: Path) -> str:
    """Return the file of a cluster of three CS-3 with two MemoryX groups."""
    sections = {
        "machine": {"system": "CS-3"},
        "runtime": {"queue": {"systems": 3, "memoryx_groups": 2}},
    }
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(sections))
    return str(tmp_path / "cluster.yaml")


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


def test_plan_shows_activation_servers_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spread over the hosts of systems, as weight servers are."""
    runtime = {"activation_servers": 3, "server_placement": "SPREAD"}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    words = ("--cluster", str(tmp_path / "cluster.yaml"), "--num_csx", "4", "--hosts", "2x2")
    first, second = rows(capsys, "cluster", "plan", *words)
    assert (first["ACTIVATIONS"], second["ACTIVATIONS"]) == ("act-0,act-2", "act-1")


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
    with pytest.raises(SystemExit) as ended:
        tool(capsys, "cluster", "plan", *words)
    assert ended.value.code == 2
    assert "'--num_csx'" in capsys.readouterr().err


def test_plan_refuses_hosts_that_are_too_few(
    machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--cluster", machine, "--num_csx", 7, "--hosts", "3x2")
    assert "[too-few-cpus]" in tool(capsys, "cluster", "plan", *words, code=1)
