"""Training starts on the tested release of torch alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.tested_torch import check_torch
from waferstream.version import TORCH

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


def test_the_tested_torch_is_the_one_that_is_installed_with_the_program() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    assert f"torch=={TORCH}" in project["optional-dependencies"]["train"]
    check_torch(torch.__version__)


@pytest.mark.parametrize("build", ["", "+cpu", "+cu130"])
def test_every_build_of_the_tested_release_trains(build: str) -> None:
    check_torch(f"{TORCH}{build}")


@pytest.mark.parametrize("other", ["2.12.0", "2.13.1+cpu", "2.14.0.dev20260801"])
def test_another_release_is_refused(other: str) -> None:
    """With the command that installs the tested one."""
    with raises(ConfigError, "torch-not-tested") as caught:
        check_torch(other)
    assert caught.value.value == other
    assert f"torch=={TORCH}" in str(caught.value.remedy)
