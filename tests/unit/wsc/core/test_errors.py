"""Errors say what, where, value, rule and remedy, in every process."""

import copy
import pickle

import pytest

from wsc.core import errors
from wsc.core.errors import WaferStreamError, did_you_mean, nearest


def tree(kind):
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


KINDS = [kind for kind in tree(WaferStreamError) if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_an_error_survives_the_way_between_processes(kind, through):
    """The same class with the same fields comes out, whatever it carried."""
    error = kind("what", where="here", value=3, rule="less than 2", remedy="take 1")
    again = through(error)
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_what_alone_is_enough(kind):
    """A short error prints one line."""
    error = kind("something broke")
    assert str(error) == "something broke"
    assert str(pickle.loads(pickle.dumps(error))) == "something broke"


def test_the_tree_of_the_documentation_is_the_tree():
    """The module's own picture names every class under its parent."""
    lines = [line.strip() for line in errors.__doc__.splitlines()]
    drawn = {line.lstrip("├└│─ ").split()[0] for line in lines if line.startswith(("├", "└", "│"))}
    assert drawn == {kind.__name__ for kind in KINDS} - {"WaferStreamError"}
    below = {kind.__name__ for kind in tree(errors.ApplianceError)} - {"ApplianceError"}
    indented = {
        line.split("── ")[1].split()[0]
        for line in errors.__doc__.splitlines()
        if line.startswith("        ") and "── " in line
    }
    assert below == indented


def test_the_message_names_every_field():
    """Fields stand on lines of their own, in a fixed order; missing ones leave no trace."""
    error = WaferStreamError("it broke", value=0, remedy="mend it")
    assert str(error).splitlines() == ["it broke", "  value: 0", "  remedy: mend it"]


def test_the_nearest_word():
    """A slip of the pen is recognised, another word is not."""
    assert nearest("laerning_rate", ["learning_rate", "momentum"]) == "learning_rate"
    assert nearest("zebra", ["learning_rate", "momentum"]) is None
    assert nearest("x", iter([])) is None


def test_the_remedy_is_a_question():
    """Only where a known word comes near; else whoever made the slip knows better."""
    assert did_you_mean("momemtum", ["learning_rate", "momentum"]) == "did you mean 'momentum'?"
    assert did_you_mean("zebra", ["learning_rate", "momentum"]) is None
