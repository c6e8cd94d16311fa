"""What only processes of this host can show: deaths on all sides, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ClusterJobInitError
from waferstream.management.launch import keeper
from waferstream.management.launch.launcher import Ended, Launch, Running
from waferstream.management.launch.process import ProcessLauncher

LOST = Ended(None, "its process was killed, or its host started again")

DIES_BEHIND_A_LAUNCH = """
import os, signal, sys
from pathlib import Path
from waferstream.management.launch.launcher import Launch
from waferstream.management.launch.process import ProcessLauncher
ProcessLauncher(Path(sys.argv[1])).start(Launch.model_validate_json(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""
WAITS = "import sys, time; print('up', flush=True); time.sleep(600)"
WAITS_FOR_FILE = """
import sys, time
from pathlib import Path
while not Path("go").exists():
    time.sleep(0.01)
sys.exit(5)
"""
LEAVES_A_DAEMON = """
import subprocess, sys
words = [sys.executable, "-c", "import time; print('daemon', flush=True); time.sleep(600)"]
daemon = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)
daemon.stdout.readline()
print(daemon.pid)
"""


@pytest.fixture
def launcher(tmp_path: Path) -> ProcessLauncher:
    return ProcessLauncher(tmp_path / "launches")


def launch(folder: Path, program: str, **fields: object) -> Launch:
    data = {"id": "wflow-1.1", "folder": folder, "words": ("-c", program), "log": folder / "log"}
    return Launch.model_validate({**data, **fields})


def wait_for_end(launcher: ProcessLauncher) -> Ended:
    while not isinstance(state := launcher.states()["wflow-1.1"], Ended):
        time.sleep(0.02)
    return state


def keeper_file(tmp_path: Path) -> Path:
    return tmp_path / "launches" / "wflow-1.1" / keeper.KEEPER


def test_launch_outlives_a_killed_management(launcher: ProcessLauncher, tmp_path: Path) -> None:
    asked = launch(tmp_path, WAITS_FOR_FILE)
    words = [str(tmp_path / "launches"), asked.model_dump_json()]
    done = subprocess.run([sys.executable, "-c", DIES_BEHIND_A_LAUNCH, *words], check=False)
    assert done.returncode == -signal.SIGKILL
    assert launcher.states() == {asked.id: Running()}
    launcher.start(asked)
    (tmp_path / "go").touch()
    assert wait_for_end(launcher) == Ended(5)


def test_start_that_was_cut_off_is_made_again(launcher: ProcessLauncher, tmp_path: Path) -> None:
    asked = launch(tmp_path, "print('once')")
    folder = keeper_file(tmp_path).parent
    folder.mkdir()
    (folder / keeper.LAUNCH).write_text("{}")
    assert launcher.states() == {}
    launcher.start(asked)
    assert wait_for_end(launcher) == Ended(0)


def test_daemon_of_a_command_ends_with_it(launcher: ProcessLauncher, tmp_path: Path) -> None:
    launcher.start(launch(tmp_path, LEAVES_A_DAEMON))
    assert wait_for_end(launcher) == Ended(0)
    assert keeper.identity(int((tmp_path / "log").read_text())) is None


def test_command_ends_with_its_keeper(launcher: ProcessLauncher, tmp_path: Path) -> None:
    launcher.start(launch(tmp_path, f"import os; print(os.getpid(), flush=True); {WAITS}"))
    log = tmp_path / "log"
    while not log.exists() or not log.read_text().endswith("up\n"):
        time.sleep(0.02)
    os.kill(json.loads(keeper_file(tmp_path).read_text())["pid"], signal.SIGKILL)
    assert wait_for_end(launcher) == LOST
    while keeper.identity(int(log.read_text().split()[0])) is not None:
        time.sleep(0.02)


def test_launch_of_an_earlier_boot_has_ended(launcher: ProcessLauncher, tmp_path: Path) -> None:
    launcher.start(launch(tmp_path, "pass"))
    wait_for_end(launcher)
    (keeper_file(tmp_path).parent / keeper.ENDED).unlink()
    now = keeper.identity(os.getpid())
    assert now is not None
    keeper_file(tmp_path).write_text(json.dumps({**now, "boot": "earlier"}))
    assert launcher.states() == {"wflow-1.1": LOST}


def test_later_process_of_the_same_number_gets_no_signal(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    launcher.start(launch(tmp_path, "pass"))
    wait_for_end(launcher)
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE) as other:
        now = keeper.identity(other.pid)
        assert now is not None
        ticks = now["started_ticks"] - 1
        keeper_file(tmp_path).write_text(json.dumps({**now, "started_ticks": ticks}))
        launcher.ask_to_end("wflow-1.1")
        launcher.kill("wflow-1.1")
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        other.kill()
        assert other.wait() == -signal.SIGKILL


def test_command_that_cannot_start_says_why(launcher: ProcessLauncher, tmp_path: Path) -> None:
    with raises(ClusterJobInitError, "launch-without-folder"):
        launcher.start(launch(tmp_path / "none", "pass"))
    launcher.start(launch(tmp_path, "pass", log=tmp_path / "none" / "log"))
    ended = wait_for_end(launcher)
    assert (ended.exit_code, "none/log" in ended.message) == (127, True)


def test_launch_is_no_child_of_the_management(launcher: ProcessLauncher, tmp_path: Path) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()
    launcher.start(launch(tmp_path, "pass"))
    assert set(children.read_text().split()) <= set(before)


def test_keeper_that_does_not_start_says_why(
    launcher: ProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with raises(ClusterJobInitError, "launch-not-started"):
        launcher.start(launch(tmp_path, "pass"))
    assert launcher.states() == {}


@pytest.mark.nightly  # makes a virtual environment
def test_packages_come_over_those_of_the_host(launcher: ProcessLauncher, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    (tmp_path / "waferstream.py").write_text("raise SystemExit('of the user, not for pip')")
    program = "import brand_new, pydantic; print(brand_new.COLOUR)"
    launcher.start(launch(tmp_path, program, packages=(str(wheel),)))
    assert wait_for_end(launcher) == Ended(0), (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text() == "green\n"
    launcher.start(launch(tmp_path, program, packages=("no such ==",), id="other"))
    while not isinstance(state := launcher.states()["other"], Ended):
        time.sleep(0.05)
    assert state.exit_code not in (0, None)


def make_wheel(folder: Path) -> Path:
    """Make a distribution of one module, as no registry has it."""
    wheel = folder / "brand_new-1-py3-none-any.whl"
    about = "brand_new-1.dist-info"
    files = {
        "brand_new.py": "COLOUR = 'green'\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: brand-new\nVersion: 1\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel
