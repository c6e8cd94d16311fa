"""A management launches runs as jobs of a Ray that an administrator has started."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contract.test_launchers import SAVES
from tests.support.errors import raises
from tests.support.host.ray_head import ray_head
from tests.support.runs.tiny_run import DIGEST, ROOT, run_here, write_run
from tests.unit.waferstream.management.launch.test_process import make_wheel
from waferstream.core.errors import ClusterJobInitError
from waferstream.management.launch.launcher import ASKED, Ended, Launch, Running
from waferstream.management.launch.ray import RayLauncher

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayLauncher]:
    with ray_head(4) as address:
        yield RayLauncher(address, tmp_path_factory.getbasetemp())


def wait_for_end(launcher: RayLauncher, launch_id: str) -> Ended:
    while not isinstance(state := launcher.states()[launch_id], Ended):
        time.sleep(0.2)
    return state


def train(folder: Path, name: str) -> Launch:
    """Write a tiny run that joins Ray with two systems; return its launch."""
    flags = write_run(folder, kind="ray", init__checkpoint={"steps": 8})
    runtime = {"kind": "ray", "address": RayLauncher.runtime_address}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    words = (str(ROOT / "run.py"), *flags, "--num_csx=2", "--mode=train")
    return Launch(id=name, folder=folder, words=words, log=folder / "log")


def log_of(asked: Launch) -> str:
    return asked.log.read_text() if asked.log.exists() else ""


def test_job_that_is_asked_to_end_has_time_to_save(launcher: RayLauncher, tmp_path: Path) -> None:
    asked = Launch(id="save", folder=tmp_path, words=("-c", SAVES), log=tmp_path / "log")
    launcher.start(asked)
    launcher.start(asked)
    while "ready" not in log_of(asked):
        assert launcher.states()[asked.id] == Running()
        time.sleep(0.1)
    launcher.ask_to_end(asked.id)
    assert wait_for_end(launcher, asked.id) == Ended(ASKED)
    assert log_of(asked) == "ready\nsaved\n"


@pytest.mark.nightly
def test_run_that_is_asked_to_end_goes_on_to_the_weights_of_one_process(
    launcher: RayLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, launched = tmp_path / "alone", tmp_path / "launched"
    alone.mkdir()
    launched.mkdir()
    code, out, err = run_here([*write_run(alone), "--mode=train"], capsys)
    assert code == 0, err
    asked = train(launched, "wflow-1.1")
    launcher.start(asked)
    while "Step=2" not in log_of(asked):
        assert launcher.states()[asked.id] == Running(), log_of(asked)
        time.sleep(0.2)
    launcher.ask_to_end(asked.id)
    assert wait_for_end(launcher, asked.id).exit_code in (0, 143)
    assert list((launched / "model_dir").glob("checkpoint_*.mdl")), log_of(asked)
    launcher.start(asked.model_copy(update={"id": "wflow-1.2"}))
    ended = wait_for_end(launcher, "wflow-1.2")
    assert ended == Ended(0), log_of(asked)
    weights = next(line for line in out.splitlines() if line.startswith(DIGEST))
    assert weights in log_of(asked)


def test_other_token_is_refused(
    launcher: RayLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.states()
    monkeypatch.setitem(launcher._client._headers, "authorization", "Bearer 0")
    with raises(ClusterJobInitError, "ray-jobs-refused"):
        launcher.start(train(tmp_path, "wflow-2.1"))


def test_another_management_sees_only_its_own_jobs(
    launcher: RayLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would kill what it does not know, as leftovers."""
    asked = Launch(id="mine", folder=tmp_path, words=("-c", ""), log=tmp_path / "log")
    launcher.start(asked)
    wait_for_end(launcher, asked.id)
    monkeypatch.setattr(launcher, "_logs", tmp_path / "other")
    assert asked.id not in launcher.states()


def test_dead_head_is_named(tmp_path: Path) -> None:
    with raises(ClusterJobInitError, "ray-jobs-refused") as caught:
        RayLauncher("http://127.0.0.1:9", Path()).states()
    assert "127.0.0.1:9" in str(caught.value.where)


@pytest.mark.nightly  # Ray copies the virtual environment
@pytest.mark.timeout(600)
def test_packages_come_over_those_of_the_host(launcher: RayLauncher, tmp_path: Path) -> None:
    program = "import brand_new, pydantic; print(brand_new.COLOUR)"
    asked = Launch(
        id="wflow-3.1",
        folder=tmp_path,
        words=("-c", program),
        log=tmp_path / "log",
        packages=(f"brand-new @ file://{make_wheel(tmp_path)}",),
    )
    launcher.start(asked)
    ended = wait_for_end(launcher, asked.id)
    assert (ended, log_of(asked)) == (Ended(0), "green\n")
