"""The commands of docs/appliance.md run as they are written, on an appliance of this host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.host.command_blocks import NEEDS_MANAGEMENT, ROOT, CommandBlock, command_blocks
from tests.support.runs.tiny_run import write_run
from waferstream.management.client.site import ADDRESS, CONFIGURATION

BLOCKS = [block for block in command_blocks() if block.document in NEEDS_MANAGEMENT]
_START = ("management", "start", "--systems", "4", "--groups", "2", "--port=0", "--http_port=0")
_ENDING_S = 30.0


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start an appliance; return the environment of its user, who has a params file."""
    home = tmp_path_factory.mktemp("user")
    write_run(home, compiles=True, init__loop={"max_steps": 4})
    programs = home / "bin"
    programs.mkdir()
    program = programs / "waferstream"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m waferstream "$@"\n')
    program.chmod(0o755)
    env = {
        **{key: value for key, value in os.environ.items() if key != CONFIGURATION},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "WAFERSTREAM_STATE": str(home / "state"),
        "HOME": str(home),
    }
    words = [sys.executable, "-m", "waferstream", *_START]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as management:
        assert management.stdout is not None
        address = management.stdout.readline().split()[1]
        yield {**env, ADDRESS: address}
        management.terminate()
        management.wait(_ENDING_S)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.commands[0])
def test_commands_of_the_walk_run(block: CommandBlock, user: dict[str, str]) -> None:
    """One after the other, by the one who has started the appliance."""
    for command in block.commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=user["HOME"],
            env=user,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        if "--detach" in command:
            user["JOB"] = (done.stdout + done.stderr).split("workflow id: ")[1].split()[0]
