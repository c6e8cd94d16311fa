"""Certificates of hosts and roles: what is made, read, and refused."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from swarmx.links.certificates import (
    certificate_of_role,
    make_authority,
    make_certificate,
    read_credentials,
)
from tests.support.errors import raises
from waferstream.cli.main import main
from waferstream.core.errors import ConfigError

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes for a host, and for one of another authority."""
    folder = tmp_path_factory.mktemp("certificates")
    for authority in ("ours", "theirs"):
        made = ["certificates", "make", str(folder / authority), "--host", f"{HOST},localhost"]
        assert main(made) == 0
    return folder


def files(folder: Path) -> dict[str, Path]:
    return {
        "authority": folder / "ca.pem",
        "certificate": folder / "certificate.pem",
        "key": folder / "key.pem",
    }


def test_further_host_gets_the_authority_of_the_folder(folder: Path) -> None:
    before = (folder / "ours" / "ca.pem").read_bytes()
    assert main(["certificates", "make", str(folder / "ours"), "--host", "host-2"]) == 0
    assert (folder / "ours" / "host-2" / "ca.pem").read_bytes() == before
    made = read_credentials(**files(folder / "ours" / "host-2"))
    assert made.authority == before


def test_private_keys_are_for_their_owner_alone(folder: Path) -> None:
    keys = [*folder.rglob("*key*")]
    assert len(keys) >= 4
    assert all(key.stat().st_mode & 0o777 == 0o600 for key in keys)


def test_key_is_in_no_text(folder: Path) -> None:
    """A key appears in no log or error that prints its holder."""
    own = certificate_of_role("csx-0")
    assert "PRIVATE" not in repr(own)
    assert "PRIVATE" not in own.identity


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("certificate.pem", None, "certificate-not-readable"),
        ("certificate.pem", b"", "certificate-unusable"),
        ("certificate.pem", bytes(range(256)), "certificate-unusable"),
        ("ca.pem", b"-----BEGIN CERTIFICATE-----\nMII", "certificate-unusable"),
        ("key.pem", b"", "certificate-unusable"),
    ],
)
def test_missing_or_damaged_file_is_refused(
    folder: Path, tmp_path: Path, name: str, content: bytes | None, code: str
) -> None:
    host = tmp_path / "host"
    shutil.copytree(folder / "ours" / HOST, host)
    if content is None:
        (host / name).unlink()
    else:
        (host / name).write_bytes(content)
    with raises(ConfigError, code):
        read_credentials(**files(host))


def test_key_must_belong_to_the_certificate(folder: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    shutil.copytree(folder / "ours" / HOST, host)
    shutil.copy(folder / "theirs" / HOST / "key.pem", host / "key.pem")
    with raises(ConfigError, "certificate-unusable"):
        read_credentials(**files(host))


def test_key_that_others_can_read_is_refused(folder: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    shutil.copytree(folder / "ours" / HOST, host)
    (host / "key.pem").chmod(0o640)
    with raises(ConfigError, "key-readable-by-others"):
        read_credentials(**files(host))


def test_certificate_that_has_expired_is_refused(tmp_path: Path) -> None:
    authority = make_authority("ours", timedelta(days=1))
    past = make_certificate(authority, [HOST], timedelta(hours=-1))
    names = {"ca.pem": authority.certificate, "certificate.pem": past.certificate}
    for name, content in {**names, "key.pem": past.key}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "key.pem").chmod(0o600)
    with raises(ConfigError, "certificate-unusable"):
        read_credentials(**files(tmp_path))
