"""The command of a launched process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.management.manager.commands import command_of
from waferstream.management.model.workflow import Submission


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("--params p.yaml", "--params p.yaml --num_csx 3 --model_dir /run"),
        ("fit p.yaml --local", "fit p.yaml --local --num_csx 3 --model_dir /run"),
        ("exec train.py --num_csx 9", "exec --num_csx 3 train.py --num_csx 9"),
        ("serve model", "serve model"),
    ],
)
def test_systems_are_those_that_were_given(words: str, command: str) -> None:
    submission = Submission(words=tuple(words.split()), num_csx=4)
    assert command_of(submission, 3, Path("/run")) == tuple(command.split())


def test_compile_stops_before_it_runs() -> None:
    submission = Submission(words=("--params", "p.yaml"))
    assert command_of(submission, 1, Path("/run"), compile_only=True)[-1] == "--compile_only"


@pytest.mark.parametrize("flag", ["--num_csx=8", "-o", "--mgmt_address"])
def test_what_the_management_gives_is_refused(flag: str) -> None:
    with raises(ConfigError, "not-allowed"):
        command_of(Submission(words=("--params", "p.yaml", flag, "x")), 1, Path())
