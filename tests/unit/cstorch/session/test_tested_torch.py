"""Training starts on the tested release of torch alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

from cstorch.session.tested_torch import check_torch
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.version import TORCH

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


def test_the_tested_torch_is_the_one_that_is_installed_with_the_program() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    assert f"torch=={TORCH}" in project["optional-dependencies"]["train"]
    check_torch()


@pytest.mark.parametrize("build", ["", "+cpu", "+cu130"])
def test_every_build_of_the_tested_release_trains(
    monkeypatch: pytest.MonkeyPatch, build: str
) -> None:
    monkeypatch.setattr(torch, "__version__", f"{TORCH}{build}")
    check_torch()


@pytest.mark.parametrize("other", ["2.12.0", "2.13.1+cpu", "2.14.0.dev20260801"])
def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """With the command that installs the tested one."""
    monkeypatch.setattr(torch, "__version__", other)
    with raises(ConfigError, "torch-not-tested") as caught:
        check_torch()
    assert caught.value.value == other
    assert f"torch=={TORCH}" in str(caught.value.remedy)
