"""Locks between processes of one user, which no other user can hold."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from waferstream.host.locks import locked

_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the file as it is, and keeps it."""
    command = [sys.executable, "-S", "-c", _HOLD, str(path)]
    pipe = subprocess.PIPE
    path.touch(mode=0o600)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_file_is_for_its_user_alone(path: Path) -> None:
    with locked(path):
        assert path.stat().st_mode & 0o777 == 0o600


def test_wait_has_a_limit_and_names_the_holder(path: Path, holder: subprocess.Popen[str]) -> None:
    """Also a holder that is stopped for ever."""
    with pytest.raises(TimeoutError) as caught, locked(path, 0.1):
        pass
    assert caught.value.filename == str(path)
    assert f"process {holder.pid} " in str(caught.value.strerror)


def test_lock_that_others_can_hold_is_not_waited_for(
    path: Path, holder: subprocess.Popen[str]
) -> None:
    """Whoever can read a file can lock it: such a file is replaced."""
    path.chmod(0o644)
    assert holder.poll() is None
    with locked(path, 0):
        assert path.stat().st_mode & 0o777 == 0o600


def test_who_waits_has_the_lock_after_the_holder(path: Path) -> None:
    """One at a time, though some remove the file."""
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(20):
            with locked(path):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1
                path.unlink()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == ([0], [1])


def test_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError), locked(path):  # noqa: PT011  # the kernel's ELOOP
        pass
    assert not (tmp_path / "victim").exists()
