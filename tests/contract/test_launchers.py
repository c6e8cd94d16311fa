"""Processes and Ray jobs start, end and are found again alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.host.ray_head import ray_head
from waferstream.management.launch.launcher import Ended, Launch, Launcher, Running
from waferstream.management.launch.process import ProcessLauncher

Make = Callable[[], Launcher]

SAVES = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(4)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""
STAYS = SAVES.replace("sys.exit(4)", "").replace(
    "time.sleep(600)", "[time.sleep(600) for _ in 'ab']"
)


@pytest.fixture(
    scope="module",
    params=[
        "process",
        pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(300)]),
    ],
)
def make(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Make]:
    """What a management makes when it starts: the launcher of the launches there are."""
    if request.param == "process":
        kept = tmp_path_factory.mktemp("launches")
        yield lambda: ProcessLauncher(kept)
        return
    from waferstream.management.launch.ray import RayLauncher

    with ray_head(2) as address:
        yield lambda: RayLauncher(address, tmp_path_factory.getbasetemp())


@pytest.fixture
def launcher(make: Make) -> Iterator[Launcher]:
    made = make()
    yield made
    for each, state in made.states().items():
        if state == Running():
            made.kill(each)
            wait_for_end(made, each)
    made.close()


@pytest.fixture
def launch(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Launch]:
    """Make launches of a program in Python, with an id that no other test uses."""

    def made(program: str, *words: str, **fields: object) -> Launch:
        id_ = f"{request.node.name.partition('[')[0]}-{time.monotonic_ns()}"
        log = tmp_path / "run.log"
        data = {"id": id_, "folder": tmp_path, "words": ("-c", program, *words), "log": log}
        return Launch.model_validate({**data, **fields})

    return made


def wait_for_end(launcher: Launcher, launch_id: str) -> Ended:
    """Wait until a launch has ended, at most until the test times out."""
    while not isinstance(state := launcher.states()[launch_id], Ended):
        time.sleep(0.05)
    return state


def wait_for_log(launcher: Launcher, asked: Launch, words: bytes) -> None:
    """Wait until a launch has printed some words, at most until the test times out."""
    while not asked.log.exists() or words not in asked.log.read_bytes():
        assert launcher.states()[asked.id] == Running()
        time.sleep(0.05)


def test_command_runs_in_its_folder_with_its_variables(
    launcher: Launcher, launch: Callable[..., Launch], tmp_path: Path
) -> None:
    program = "import os, sys; print(os.getcwd(), os.environ['COLOUR'], sys.argv[1:])"
    asked = launch(program, "--name=a b", "'$(x)", env={"COLOUR": "red"})
    launcher.start(asked)
    assert wait_for_end(launcher, asked.id) == Ended(0)
    printed = asked.log.read_bytes().decode()
    assert printed == f"{tmp_path} red ['--name=a b', \"'$(x)\"]\n"


def test_exit_code_is_that_of_the_command(
    launcher: Launcher, launch: Callable[..., Launch]
) -> None:
    asked = launch("import sys; sys.exit('not today')")
    launcher.start(asked)
    assert wait_for_end(launcher, asked.id).exit_code == 1
    assert asked.log.read_bytes() == b"not today\n"


def test_second_start_changes_nothing(make: Make, launch: Callable[..., Launch]) -> None:
    asked = launch("print('started')")
    for launcher in (make(), make()):
        launcher.start(asked)
        launcher.start(asked)
    wait_for_end(launcher, asked.id)
    launcher.start(asked)
    assert asked.log.read_bytes() == b"started\n"


def test_command_that_is_asked_to_end_has_time_to_save(
    launcher: Launcher, launch: Callable[..., Launch]
) -> None:
    asked = launch(SAVES)
    launcher.start(asked)
    wait_for_log(launcher, asked, b"ready")
    launcher.ask_to_end(asked.id)
    assert wait_for_end(launcher, asked.id).exit_code in (4, 143)  # Ray keeps no code
    assert asked.log.read_bytes() == b"ready\nsaved\n"


def test_command_that_does_not_end_is_killed_after_its_grace(
    launcher: Launcher, launch: Callable[..., Launch]
) -> None:
    asked = launch(STAYS, grace_s=0.5)
    launcher.start(asked)
    wait_for_log(launcher, asked, b"ready")
    launcher.ask_to_end(asked.id)
    wait_for_end(launcher, asked.id)
    assert asked.log.read_bytes() == b"ready\nsaved\n"


def test_kill_asks_nobody(launcher: Launcher, launch: Callable[..., Launch]) -> None:
    asked = launch(SAVES)
    launcher.start(asked)
    wait_for_log(launcher, asked, b"ready")
    launcher.kill(asked.id)
    assert wait_for_end(launcher, asked.id).exit_code in (137, None)
    assert asked.log.read_bytes() == b"ready\n"


def test_forgotten_launch_leaves_its_log(launcher: Launcher, launch: Callable[..., Launch]) -> None:
    asked = launch("print('done')")
    launcher.start(asked)
    wait_for_end(launcher, asked.id)
    launcher.forget(asked.id)
    assert asked.id not in launcher.states()
    assert asked.log.read_bytes() == b"done\n"


def test_running_launch_is_not_forgotten(launcher: Launcher, launch: Callable[..., Launch]) -> None:
    asked = launch(SAVES)
    launcher.start(asked)
    launcher.forget(asked.id)
    assert launcher.states()[asked.id] == Running()


def test_unknown_launch_is_none(launcher: Launcher) -> None:
    for end in (launcher.ask_to_end, launcher.kill, launcher.forget):
        end("none")
    assert "none" not in launcher.states()
