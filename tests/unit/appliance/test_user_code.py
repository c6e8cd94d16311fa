"""The search path and import hooks that travel to another process."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
from pathlib import Path

import pytest

import cstorch
from appliance.user_code import UserCode, importing_from, imports_end_with, prepare_imports_with


def test_user_code_installs_path_and_hook_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_imports_with("waferstream_compat.import_hook")
    monkeypatch.setattr(sys, "path", [*sys.path, "/a/folder/of/the/user"])
    travelled: UserCode = pickle.loads(pickle.dumps(UserCode.here()))
    imports_end_with("waferstream_compat.import_hook")
    monkeypatch.setattr(sys, "path", sys.path[:-1])
    assert UserCode.here().installers == ()
    travelled.install()
    assert sys.path[-1] == "/a/folder/of/the/user"
    assert importlib.import_module("cerebras.pytorch").trace is cstorch.trace
    assert UserCode.here() == travelled
    imports_end_with("waferstream_compat.import_hook")


@pytest.mark.parametrize("is_refused", [False, True])
def test_refused_code_is_found_in_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """Not even by the name of a package that is imported where it is installed."""
    (tmp_path / "looked_for.py").touch()
    monkeypatch.setenv("WAFERSTREAM_USER_CODE", "refuse" if is_refused else "")
    with importing_from([tmp_path]):
        assert (importlib.util.find_spec("looked_for") is None) == is_refused
