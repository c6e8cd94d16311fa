"""Which states are loaded, and what happens when keys do not match."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.checkpoint_states import STATES, match_keys, selected_states
from wsc.core.errors import CheckpointError, ConfigError

keys = st.lists(st.sampled_from("abcdefghijkl"), unique=True)


def test_all_means_every_state():
    """``all`` is the default and takes everything."""
    assert selected_states("all") == set(STATES)


def test_a_list_means_these_states():
    """Names with commas, blanks allowed, the older name of schedulers too."""
    assert selected_states("model") == {"model"}
    assert selected_states("model, optimizer,lr_scheduler") == {"model", "optimizer", "schedulers"}


@pytest.mark.parametrize("text", ["", "model,", "modle", "all,model"])
def test_an_unknown_state_is_refused(text):
    """The error lists the states, and the nearest one if there is one."""
    with pytest.raises(ConfigError, match="load_checkpoint_states") as error:
        selected_states(text)
    assert ("did you mean 'model'" in str(error.value)) == (text == "modle")


@given(keys, keys)
def test_every_key_is_sorted_into_one_pile(expected, found):
    """Common, missing and unexpected keys together are all keys, in their own order."""
    match = match_keys(expected, found, strict=False, where="c.mdl")
    assert [key for key in expected if key in match.common or key in match.missing] == expected
    assert [key for key in found if key in match.common or key in match.unexpected] == found
    assert set(match.common) == set(expected) & set(found)
    assert not set(match.missing) & set(found)
    assert not set(match.unexpected) & set(expected)


def test_strict_matching_names_what_differs():
    """A strict load refuses and shows both lists, shortened."""
    with pytest.raises(CheckpointError) as error:
        match_keys(["a", "b"], ["b", *"uvwxyz"], strict=True, where="c.mdl")
    text = str(error.value)
    assert "where: c.mdl" in text
    assert "missing: a; unexpected: u, v, w, x, y, ... (6 in all)" in text
    assert match_keys(["a", "b"], ["b", "a"], strict=True, where="c.mdl").common == ("a", "b")


def test_other_matching_only_warns(caplog):
    """Without strict the difference goes to the log."""
    assert match_keys(["a"], ["b"], strict=False, where="c.mdl").common == ()
    assert "missing: a; unexpected: b" in caplog.text
