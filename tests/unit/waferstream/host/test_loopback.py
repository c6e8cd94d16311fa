"""Names that reach no other host."""

from __future__ import annotations

import pytest

from waferstream.host.loopback import is_loopback


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_own_names(name: str) -> None:
    assert is_loopback(name)


@pytest.mark.parametrize("name", ["", "0.0.0.0", "10.0.0.1", "localhost.example", "example"])
def test_names_of_others(name: str) -> None:
    assert not is_loopback(name)
