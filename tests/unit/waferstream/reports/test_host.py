"""What stands beside a measured number: the computer and the commit."""

import re
import subprocess
from pathlib import Path

from waferstream.reports.host import describe_host, git_commit


def test_the_host_is_described() -> None:
    """A name, at least one core, some memory, and the versions."""
    host = describe_host("2.13.0")
    assert host.cpu
    assert host.cores >= 1
    assert host.memory_bytes > 1 << 20
    assert re.fullmatch(r"3\.\d+\.\d+\S*", host.python)
    assert host.torch == "2.13.0"


def test_outside_git_there_is_no_commit(tmp_path: Path) -> None:
    """None, and no noise."""
    assert git_commit(tmp_path) is None


def test_a_changed_tree_is_not_passed_off_as_its_commit(tmp_path: Path) -> None:
    """The commit of a clean tree is 40 digits; a changed file marks it."""

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
