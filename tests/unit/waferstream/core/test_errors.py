"""Errors keep code, where, value, rule and remedy, in every process."""

import copy
import pickle
from collections.abc import Callable

import pytest

from waferstream.core import errors
from waferstream.core.errors import WaferStreamError, did_you_mean, nearest


def tree(kind: type[WaferStreamError]) -> list[type[WaferStreamError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


KINDS = [
    kind
    for kind in tree(WaferStreamError)
    if kind.__module__ == errors.__name__ and not kind.__name__.startswith("_")
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_error_survives_pickle_and_copy(
    kind: type[WaferStreamError], through: Callable[[WaferStreamError], WaferStreamError]
) -> None:
    """Pickling and copying keep the class and all fields."""
    error = kind(
        "what", code="some-rule", where="here", value=3, rule="less than 2", remedy="take 1"
    )
    again = through(error)
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_error_with_text_alone_prints_one_line(kind: type[WaferStreamError]) -> None:
    """A short error prints one line."""
    error = kind("something broke", code="broken")
    assert str(error) == "something broke [broken]"
    assert str(pickle.loads(pickle.dumps(error))) == "something broke [broken]"


def test_docstring_shows_the_error_tree() -> None:
    """The tree in the module docstring names every class under its parent."""
    assert errors.__doc__ is not None
    lines = [line.strip() for line in errors.__doc__.splitlines()]
    drawn = {line.lstrip("├└│─ ").split()[0] for line in lines if line.startswith(("├", "└", "│"))}
    assert drawn == {kind.__name__ for kind in KINDS} - {"WaferStreamError"}
    appliance = [kind for kind in tree(errors.ApplianceError) if kind in KINDS]
    below = {kind.__name__ for kind in appliance} - {"ApplianceError"}
    indented = {
        line.split("── ")[1].split()[0]
        for line in errors.__doc__.splitlines()
        if line.startswith("        ") and "── " in line
    }
    assert below == indented


def test_error_text_shows_every_field() -> None:
    """Each field has a line of its own, in a fixed order; absent fields have none."""
    error = WaferStreamError("it broke", code="broken", value=0, remedy="repair it")
    assert str(error).splitlines() == ["it broke [broken]", "  value: 0", "  remedy: repair it"]


def test_nearest_finds_a_similar_word() -> None:
    """A misspelt word is recognised, another word is not."""
    assert nearest("laerning_rate", ["learning_rate", "momentum"]) == "learning_rate"
    assert nearest("zebra", ["learning_rate", "momentum"]) is None
    assert nearest("x", iter([])) is None


def test_did_you_mean_is_a_question() -> None:
    """There is a remedy only if a known word is similar."""
    assert did_you_mean("momemtum", ["learning_rate", "momentum"]) == "did you mean 'momentum'?"
    assert did_you_mean("zebra", ["learning_rate", "momentum"]) is None


def test_client_errors_can_be_raised_with_a_text_alone() -> None:
    """Programs raise the classes of the vendor's client themselves."""
    for kind in (errors.ApplianceNanError, errors.ApplianceCompilationError):
        error = pickle.loads(pickle.dumps(kind("NaN loss detected")))
        assert (type(error), error.code) == (kind, "raised-by-program")
