"""Packages that the Model Zoo imports and no registry has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.support.errors import raises
from waferstream_compat import import_hook
from waferstream_compat.refused import FeatureNotHereError


@pytest.fixture
def hook() -> Iterator[None]:
    import_hook.install()
    yield
    import_hook.uninstall()
    for name in [name for name in sys.modules if name.partition(".")[0] == "bigcode_eval"]:
        del sys.modules[name]


@pytest.mark.usefixtures("hook")
def test_names_can_be_imported_and_a_call_is_refused() -> None:
    """As for the vendor's own names: a subclass may be defined, and no object of it made."""
    task = import_module("bigcode_eval.base").Task
    assert import_module("bigcode_eval").tasks
    with raises(FeatureNotHereError, "feature-not-here") as caught:
        type("Own", (task,), {})()
    assert "bigcode-evaluation-harness" in str(caught.value)


@pytest.mark.usefixtures("hook")
def test_other_packages_stay_missing() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("no_such_package")
