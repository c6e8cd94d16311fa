"""The search path and import hooks that travel to another process."""

from __future__ import annotations

import importlib
import pickle
import sys

import pytest

import cstorch
from appliance.user_code import UserCode, imports_end_with, prepare_imports_with


def test_user_code_installs_path_and_hook_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_imports_with("cstorch.vendor")
    monkeypatch.setattr(sys, "path", [*sys.path, "/a/folder/of/the/user"])
    travelled: UserCode = pickle.loads(pickle.dumps(UserCode.here()))
    imports_end_with("cstorch.vendor")
    monkeypatch.setattr(sys, "path", sys.path[:-1])
    assert UserCode.here().installers == ()
    travelled.install()
    assert sys.path[-1] == "/a/folder/of/the/user"
    assert importlib.import_module("cerebras.pytorch").trace is cstorch.trace
    assert UserCode.here() == travelled
    imports_end_with("cstorch.vendor")
