"""The management that a command asks: named by a flag, the environment, or the site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.management.client.address import TOKEN, keep_token
from waferstream.management.client.site import ADDRESS, CONFIGURATION, address_of


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a management."""
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "state"))
    for name in (ADDRESS, CONFIGURATION, TOKEN):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of a site with two clusters, as the vendor's has them."""
    found = {
        "clusters": [
            {"name": "small", "server": "small.example:443", "namespaces": []},
            {"name": "big", "server": "big.example:443", "certificateAuthority": "/ca.pem"},
        ],
        "contexts": [{"name": "default", "cluster": "big"}],
        "currentContext": "default",
        "fabricType": "cs3",
    }
    path = tmp_path / "config_v2"
    path.write_text(json.dumps(found))
    monkeypatch.setenv(CONFIGURATION, str(path))
    return path


def test_without_a_name_there_is_none() -> None:
    assert address_of(None) is None


def test_flag_wins_over_the_environment_and_that_over_the_site(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_site = address_of(None)
    assert of_site is not None
    assert (of_site.address, of_site.certificate) == ("big.example:443", Path("/ca.pem"))
    monkeypatch.setenv(ADDRESS, "other:1")
    of_environment = address_of(None)
    assert of_environment is not None
    assert (of_environment.address, of_environment.certificate) == ("other:1", None)
    typed = address_of("typed:2", Path("own.pem"))
    assert typed is not None
    assert (typed.address, typed.certificate) == ("typed:2", Path("own.pem"))


def test_token_is_that_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_token("one:1", "first")
    keep_token("two:2", "second")
    assert [token_of(each) for each in ("one:1", "two:2", "no:3")] == ["first", "second", ""]
    monkeypatch.setenv(TOKEN, "shown")
    assert token_of("one:1") == "shown"


def token_of(address: str) -> str:
    """Return the token that a management is shown."""
    found = address_of(address)
    assert found is not None
    return found.token


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "file-not-yaml"),
        ("{}", "missing-key"),
        ('{"clusters": [{"name": "a"}]}', "missing-key"),
        ('{"clusters": [{"name": "a", "server": "a"}]}', "not-allowed"),
        (
            '{"clusters": [{"name": "a", "server": "a:1"}], "currentContext": "c",'
            ' "contexts": [{"name": "c", "cluster": "b"}]}',
            "unknown-name",
        ),
    ],
)
def test_malformed_site_is_refused(site: Path, text: str, code: str) -> None:
    site.write_text(text)
    with raises(ConfigError, code):
        address_of(None)


@pytest.mark.parametrize("text", ["site", "http://site:9080", "site:port", "a b:1"])
def test_address_that_is_none_is_refused(text: str) -> None:
    with raises(ConfigError, "not-allowed") as caught:
        address_of(text)
    assert "HOST:PORT" in caught.value.what
