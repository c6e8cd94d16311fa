"""The token of Ray: readable for its user alone, and one of its own for a private instance."""

import logging
import os
from pathlib import Path

import pytest
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

from appliance.ray.connection.token import close_token_file, own_token


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
