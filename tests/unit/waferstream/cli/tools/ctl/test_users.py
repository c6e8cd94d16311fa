"""``waferstream ctl``: users get tokens, which can be revoked."""

from __future__ import annotations

from hashlib import sha256

import pytest

from tests.support.host.tools import rows, tool
from waferstream.host.user_state import state_folder
from waferstream.management.client.client import STORE
from waferstream.management.store.opening import open_store


def test_user_gets_a_token_that_is_revoked(capsys: pytest.CaptureFixture[str]) -> None:
    (made,) = rows(capsys, "ctl", "user", "add", "ann", "--groups", "lab")
    digest = sha256(made["token"].encode()).hexdigest()
    store = open_store(state_folder() / STORE)
    with store.reading() as views:
        ann = views.caller_of(digest)
    assert ann is not None
    assert (ann.user, ann.role, ann.groups) == ("ann", "user", ("lab",))
    assert "1 tokens revoked" in tool(capsys, "ctl", "user", "revoke", "ann")
    with store.reading() as views:
        assert views.caller_of(digest) is None
    store.close()
    assert "[unknown-user]" in tool(capsys, "ctl", "user", "revoke", "bob", code=1)


def test_login_needs_a_management(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[missing-key]" in tool(capsys, "ctl", "login", code=1)
