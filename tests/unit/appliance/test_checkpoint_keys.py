"""What happens when a checkpoint's keys are not those of the model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.checkpoint_keys import check_keys
from wsc.core.errors import CheckpointError

keys = st.lists(st.sampled_from("abcdefghijkl"), unique=True)


@given(keys, keys)
def test_only_the_same_keys_match(expected, found):
    """In any order; one more or one less is refused."""
    try:
        check_keys(expected, found, strict=True, where="c.mdl")
    except CheckpointError:
        assert set(expected) != set(found)
    else:
        assert set(expected) == set(found)


def test_a_strict_check_names_what_differs():
    """It shows both lists, shortened."""
    with pytest.raises(CheckpointError) as error:
        check_keys(["a", "b"], ["b", *"uvwxyz"], strict=True, where="c.mdl")
    text = str(error.value)
    assert "where: c.mdl" in text
    assert "missing: a; unexpected: u, v, w, x, y, ... (6 in all)" in text


def test_a_lenient_check_only_warns(caplog):
    """The difference goes to the log of the run."""
    check_keys(["a"], ["b"], strict=False, where="c.mdl")
    assert "missing: a; unexpected: b" in caplog.text
    assert caplog.records[0].name == "waferstream"
