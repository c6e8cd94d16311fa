"""Tensors of a checkpoint are those that a model expects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.checkpoints.keys import check_keys
from tests.support.errors import raises
from waferstream.core.errors import CheckpointError

keys = st.lists(st.sampled_from("abcdefghijkl"), unique=True)


@given(keys, keys)
def test_check_keys_accepts_equal_keys_only(expected: list[str], found: list[str]) -> None:
    """In any order; one more or one less is refused."""
    try:
        check_keys(expected, found, strict=True, where="c.mdl")
    except CheckpointError:
        assert set(expected) != set(found)
    else:
        assert set(expected) == set(found)


def test_strict_check_keys_names_the_difference() -> None:
    """It shows both lists, shortened."""
    with raises(CheckpointError, "checkpoint-keys-mismatch") as caught:
        check_keys(["a", "b"], ["b", *"uvwxyz"], strict=True, where="c.mdl")
    assert caught.value.where == "c.mdl"
    assert caught.value.value == "missing: a; unexpected: u, v, w, x, y, ... (6 in total)"


def test_check_keys_takes_optional_keys_or_not() -> None:
    """Tied names and buffers may be missing, and are not unexpected."""
    for found in (["a"], ["a", "tied"]):
        check_keys(["a"], found, optional=["tied"], strict=True, where="c.mdl")
    with raises(CheckpointError, "checkpoint-keys-mismatch"):
        check_keys(["a"], ["a", "other"], optional=["tied"], strict=True, where="c.mdl")


def test_lenient_check_keys_warns(caplog: pytest.LogCaptureFixture) -> None:
    """The difference goes to the log of the run."""
    check_keys(["a"], ["b"], strict=False, where="c.mdl")
    assert "missing: a; unexpected: b" in caplog.text
    assert caplog.records[0].name == "waferstream"
