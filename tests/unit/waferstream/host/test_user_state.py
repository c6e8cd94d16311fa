"""The state folder and the key of a user: private, made once, and not needed to run."""

from __future__ import annotations

import hmac
import subprocess
import sys
from pathlib import Path

import pytest

from waferstream.host.user_state import is_sealed, make_private, sealed, state_folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own."""
    folder = tmp_path / "state"
    monkeypatch.setenv("WAFERSTREAM_STATE", str(folder))
    return folder


def test_state_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAFERSTREAM_STATE", "/a")
    assert state_folder() == Path("/a")
    monkeypatch.delenv("WAFERSTREAM_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    assert state_folder() == Path("/b/waferstream")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder() == Path.home() / ".local/state/waferstream"


def test_user_without_home_has_no_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("WAFERSTREAM_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(FileNotFoundError):
        state_folder()
    assert is_sealed(b"x", sealed(b"x"))


def test_seal_is_of_the_user_and_the_content(home: Path) -> None:
    """Processes of the user share the key, which only the user can read."""
    seal = sealed(b"content")
    assert is_sealed(b"content", seal)
    assert not is_sealed(b"contents", seal)
    assert not is_sealed(b"content", None)
    assert [path.name for path in home.iterdir()] == ["cache.key"]
    assert (home / "cache.key").stat().st_mode & 0o777 == 0o600
    code = "from waferstream.host.user_state import sealed; print(sealed(b'content'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert other.stdout.strip() == seal


def test_another_user_has_another_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seal = sealed(b"content")
    monkeypatch.setenv("WAFERSTREAM_STATE", str(home / "other"))
    assert not is_sealed(b"content", seal)


@pytest.mark.parametrize("damage", ["readable", "short"])
def test_key_that_protects_nothing_is_not_used(home: Path, damage: str) -> None:
    """A key that others can read, or that is no key, seals nothing for a later run."""
    home.mkdir()
    path = home / "cache.key"
    path.write_bytes(bytes(32 if damage == "readable" else 3))
    path.chmod(0o644 if damage == "readable" else 0o600)
    forged = hmac.digest(path.read_bytes(), b"content", "sha256").hex()
    assert not is_sealed(b"content", forged)


def test_folder_becomes_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
