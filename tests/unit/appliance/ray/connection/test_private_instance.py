"""Folders of private instances of Ray: safe from others, and removed after their process."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import pytest
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

from appliance.ray.connection import private_instance
from appliance.ray.connection.private_instance import (
    check_shared_memory,
    close_token_file,
    new_session,
    own_token,
    private_folder,
    remove_ended_sessions,
)
from tests.support.errors import raises
from tests.support.host.users import NOBODY, needs_root
from waferstream.core.errors import ClusterJobInitError


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of the host, where all users write; the state folder has no room."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(folder))
    monkeypatch.setattr("appliance.ray.connection.private_instance._PATH_BYTES", 300)
    monkeypatch.setenv("WAFERSTREAM_STATE", "/" + "long/" * 60)
    return folder


def test_folder_is_for_its_user_alone(temporary: Path) -> None:
    folder = private_folder()
    assert folder.parent == temporary / f"waferstream-{os.getuid()}"
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    folder.parent.chmod(0o777)
    assert private_folder() == folder
    assert folder.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("name", "value"), [("", "read-only"), ("shm", "missing")])
def test_host_without_shared_memory_is_told(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would try for two minutes, and say that the host is overloaded."""
    check_shared_memory()
    monkeypatch.setattr(private_instance, "_SHARED_MEMORY", tmp_path / name)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write to any folder
    with raises(ClusterJobInitError, "host-without-shared-memory") as caught:
        check_shared_memory()
    assert (caught.value.where, caught.value.value) == (str(tmp_path / name), value)


def test_link_is_no_folder_of_its_user(temporary: Path, tmp_path: Path) -> None:
    """It would give the rights of the user's folder to whoever can change the link."""
    (tmp_path / "home").mkdir(mode=0o755)
    (temporary / f"waferstream-{os.getuid()}").symlink_to(tmp_path / "home")
    with raises(ClusterJobInitError, "ray-folder-not-private") as caught:
        private_folder()
    assert caught.value.remedy
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o755


@needs_root
@pytest.mark.parametrize("name", ["", "ray"])
def test_folder_that_another_user_made_is_not_used(temporary: Path, name: str) -> None:
    root = temporary / f"waferstream-{os.getuid()}"
    (root / name).mkdir(parents=True)
    os.chown(root / name, NOBODY, NOBODY)
    with raises(ClusterJobInitError, "ray-folder-not-private"):
        private_folder()


def test_place_where_others_rename_is_not_used(temporary: Path) -> None:
    """Without the sticky bit any user can put another folder in the place of this one."""
    temporary.chmod(0o777)
    with raises(ClusterJobInitError, "ray-folder-not-private"):
        private_folder()


def test_state_folder_serves_where_the_temporary_one_does_not(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / f"waferstream-{os.getuid()}").touch()
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "state"))
    assert private_folder() == tmp_path / "state" / "sessions" / "ray"


def test_path_leaves_room_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would fail at its start."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / ("a" * 40)))
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / ("b" * 40)))
    with raises(ClusterJobInitError, "ray-folder-not-private"):
        private_folder()


def test_folders_of_ended_runs_are_removed_but_for_the_newest(tmp_path: Path) -> None:
    """Those of living processes, of others and links to them stay."""
    parent, gone = os.getppid(), 4194304  # more than the kernel gives a process
    start = Path(f"/proc/{parent}/stat").read_text().rpartition(") ")[2].split()[19]
    failed, running = new_session(), new_session()
    names = [f"session_{gone}-1-1", failed, f"session_{gone}-2-1"]
    kept = [running, f"session_{parent}-{start}-1", "session_2026-01-01_00-00-00_0_1"]
    for age, name in enumerate([*kept, *names]):
        (tmp_path / name / "logs").mkdir(parents=True)
        os.utime(tmp_path / name, (age, age))
    (tmp_path / "session_latest").symlink_to(tmp_path / running)
    remove_ended_sessions(tmp_path, running)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*kept, names[-1], "session_latest"}
    assert (tmp_path / names[-1] / "logs").exists()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a token as Ray leaves it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray").chmod(0o755)
    (tmp_path / ".ray" / "auth_token").write_text("secret")
    (tmp_path / ".ray" / "auth_token").chmod(0o644)
    return tmp_path


def test_token_that_others_can_read_is_closed(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The user hears of it once, as somebody may have read it."""
    with caplog.at_level(logging.WARNING):
        close_token_file()
        close_token_file()
    assert (home / ".ray").stat().st_mode & 0o777 == 0o700
    assert (home / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text


def test_no_token_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    close_token_file()
    assert not list(tmp_path.iterdir())


def test_each_instance_has_its_own_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the user comes back, but for what the program has changed meanwhile."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    seen = set()
    for number in range(2):
        with own_token():
            monkeypatch.setenv("OTHER", str(number))
            assert os.environ["RAY_AUTH_MODE"] == "token"
            assert AuthenticationTokenLoader.instance().has_token()
            seen.add(os.environ["RAY_AUTH_TOKEN"])
        assert os.environ["RAY_AUTH_MODE"] == "disabled"
        assert "RAY_AUTH_TOKEN" not in os.environ
        assert os.environ["OTHER"] == str(number)
    assert len(seen) == 2
    assert all(len(token) == 64 for token in seen)
