"""The file that lets a program in is for its owner alone."""

from __future__ import annotations

from pathlib import Path

from appliance.remote.access import access_path, new_access, read_access
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def test_access_is_found_by_its_address() -> None:
    access, own = new_access("127.0.0.1:4")
    access.write(access_path(access.address))
    assert read_access("127.0.0.1:4", None) == access
    assert access_path("127.0.0.1:4").stat().st_mode & 0o077 == 0
    for secret in (access.token, own.key.decode()):
        assert secret not in repr(access) + repr(own)


def test_open_or_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    assert read_access("127.0.0.1:4", path) is None
    assert read_access("127.0.0.1:4", tmp_path / "ca.pem") is None
    path.write_text("{}")
    path.chmod(0o644)
    with raises(ConfigError, "key-readable-by-others"):
        read_access("127.0.0.1:4", path)
    path.chmod(0o600)
    with raises(ConfigError, "missing-key"):
        read_access("127.0.0.1:4", path)
