"""Descriptions of the host and of the commit."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from waferstream.reports.host import describe_host, git_commit


def test_describe_host_has_every_field() -> None:
    host = describe_host("2.13.0")
    assert host.cpu
    assert host.cores >= 1
    assert host.memory_bytes > 1 << 20
    assert re.fullmatch(r"3\.\d+\.\d+\S*", host.python)
    assert host.torch == "2.13.0"


def test_git_commit_outside_git_is_none(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None


def test_git_commit_marks_a_changed_tree(tmp_path: Path) -> None:
    """The commit of a clean tree has 40 digits and no mark."""

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(("git", *identity, *arguments), cwd=tmp_path, check=True, timeout=30)

    git("init", "--quiet")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "--quiet", "--no-gpg-sign", "-m", "first")
    commit = git_commit(tmp_path)
    assert commit is not None
    assert re.fullmatch("[0-9a-f]{40}", commit)
    (tmp_path / "file").write_text("two")
    assert git_commit(tmp_path) == f"{commit}-dirty"
