"""Launches of a workflow: on Ray with a weight server killed, and of a management that is killed."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.appliance.load import Load, all_alone, findings, jobs_in, wait_for_all
from benchmarks.appliance.site import Site
from tests.support.runs.tiny_run import digest_of, finish, start, write_run
from waferstream.management.model.launched import SYSTEMS, WORKFLOW

KEYS: dict[str, Any] = {
    "init__loop": {"max_steps": 40, "eval_frequency": 0},
    "init__checkpoint": {"steps": None},
    "init__logging": {"log_steps": 1},
    "init__autorestart": {"max_num_restarts": 2},
}


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_resized_launch_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is that of the run alone, in one process, where nobody is ended or killed."""
    (tmp_path / "alone").mkdir()
    _, alone, _ = finish(write_run(tmp_path / "alone", **KEYS))
    monkeypatch.setenv(WORKFLOW, "wflow-1")
    monkeypatch.setenv(SYSTEMS, "2")
    flags = write_run(tmp_path, kind="ray", **KEYS)
    with start([*flags, "--num_csx=2"]) as process:
        assert process.stdout is not None
        assert any("Step=3," in line for line in process.stdout)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == -15
    code, out, err = finish([*flags, "--num_csx=1", "--fault=wgt-0@30:kill"])
    assert code == 0, out + err
    assert "wgt-0" in out + err
    assert digest_of(out) == digest_of(alone)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_paused_and_resized_jobs_end_as_alone(tmp_path: Path) -> None:
    """Two jobs on an appliance that ends each of them once, and that is killed meanwhile."""
    alone = all_alone(tmp_path, num_steps=20, seeds=1)
    site = Site(tmp_path / "site", systems=4, groups=2, users=2)
    try:
        site.start()
        jobs = jobs_in(tmp_path, 2, 20, 1)
        load = Load({site.submit(job, user): job for user, job in enumerate(jobs)}, alone)
        site.kill()
        site.start()
        found = findings(site, load, wait_for_all(site))
    finally:
        site.stop()
    assert (found["succeeded"], found["resized"] + found["paused"]) == (2, 2)
    wrong = ("lost", "doubled", "started_twice", "other_hash", "never_ended")
    assert not any(found[name] for name in wrong), found
