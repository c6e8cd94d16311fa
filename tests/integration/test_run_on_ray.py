"""``run.py`` on real Ray: reproducible weights, clean ends, no loss when a process is killed."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.support.host.processes import command_of, descendants, wait_for_end
from tests.support.runs.tiny_run import digest_of, run_here, start, write_run

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(400)]


def role_process(root: int, role: str) -> int:
    """Find the process of the actor that hosts a role by its process title."""
    for pid in descendants(root):
        title = command_of(pid)
        if title.startswith(b"ray::") and role.encode() in title:
            return pid
    raise AssertionError(f"no process hosts {role}")


def read_until(stream: IO[str] | None, phrase: str) -> str:
    """Return the lines up to and including the first with ``phrase``."""
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line)
        if phrase in line:
            return "".join(lines)
    raise AssertionError(f"{phrase!r} never came:\n{''.join(lines)}")


@pytest.mark.parametrize("kind", ["local", "ray"])
def test_killed_role_is_named_and_the_run_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """kill -9 of a CS node ends the run with its name and log; started again, on another cluster
    with other numbers of systems and servers, it reaches the weights of an uninterrupted run."""
    flags = [*write_run(tmp_path, kind="ray", init__autorestart=None), "--num_csx=3"]
    with start([*flags, "--max_steps=100000"]) as process:
        read_until(process.stdout, "Saved checkpoint")
        tree = descendants(process.pid)
        os.kill(role_process(process.pid, "csx-1"), signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "csx-1" in err
    assert "log" in err
    assert "Traceback" not in err
    assert wait_for_end(tree) == set()

    resumed = tmp_path / "model_dir"
    for checkpoint in sorted(resumed.glob("checkpoint_*.mdl")):
        if checkpoint.name != "checkpoint_2.mdl":
            checkpoint.unlink()
    again = [*write_run(tmp_path, kind=kind), "--num_csx=2", "--num_wgt_servers=3"]
    code, out, err = run_here(again, capsys)
    assert code == 0, err
    assert "Starting from checkpoint" in out
    uninterrupted = tmp_path / "uninterrupted"
    uninterrupted.mkdir()
    _, expected, _ = run_here(write_run(uninterrupted), capsys)
    assert digest_of(out) == digest_of(expected)


@pytest.mark.usefixtures("hang_up_ends")
@pytest.mark.parametrize(
    ("signal_number", "send", "word"),
    [
        (signal.SIGINT, os.kill, "Interrupted"),
        (signal.SIGTERM, os.killpg, "Terminated"),
        (signal.SIGHUP, os.killpg, "Hung up"),
    ],
    ids=["Ctrl-C", "SIGTERM to the group", "closed terminal"],
)
def test_interrupted_run_leaves_a_checkpoint_and_no_process(
    signal_number: int, send: Callable[[int, int], None], word: str, tmp_path: Path
) -> None:
    flags = [*write_run(tmp_path, kind="ray"), "--num_csx=2"]
    with start([*flags, "--max_steps=100000"]) as process:
        read_until(process.stdout, "Saved checkpoint")
        tree = descendants(process.pid)
        send(process.pid, signal_number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == -signal_number
    assert word in err
    assert "Saved checkpoint" in out.partition("Interrupted: a checkpoint is saved")[2]
    assert "Traceback" not in err
    assert wait_for_end(tree) == set()
    assert list((tmp_path / "model_dir").glob("*.mdl"))
    assert not list((tmp_path / "model_dir").glob(".*.partial"))
