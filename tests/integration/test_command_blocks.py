"""The commands that README and docs show run as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.host.command_blocks import (
    NEEDS_HOSTS,
    NOT_RUN,
    ROOT,
    CommandBlock,
    command_blocks,
    unmarked_blocks,
)

BLOCKS = [block for block in command_blocks() if block.to_run]


def test_blocks_of_commands_are_marked() -> None:
    assert unmarked_blocks() == []


def test_every_reason_not_to_run_a_command_has_its_command() -> None:
    """What is left out of the tests is shown somewhere, and most of what is shown runs."""
    blocks = command_blocks()
    shown = [command for block in blocks for command in block.commands]
    unused = [begin for begin in NOT_RUN if not any(each.startswith(begin) for each in shown)]
    assert unused == []
    assert {block.document for block in blocks} >= set(NEEDS_HOSTS)
    assert len(BLOCKS) >= 10


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.document}: {block.to_run[0]}")
def test_commands_of_a_block_run(block: CommandBlock, tmp_path: Path) -> None:
    """In a folder that looks like a checkout, so that nothing is written into this one."""
    checkout, programs = tmp_path / "checkout", tmp_path / "bin"
    checkout.mkdir()
    programs.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and entry.name not in ("model_dir", "build"):
            (checkout / entry.name).symlink_to(entry)
    for name, words in (("python", ""), ("waferstream", "-m waferstream ")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    for command in block.to_run:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=checkout,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
