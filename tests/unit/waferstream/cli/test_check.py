"""The command line of ``waferstream check``."""

from __future__ import annotations

from pathlib import Path

import pytest

from waferstream.cli.check import STEPS, parse_check


def test_flags_come_before_the_program_and_its_own_after(tmp_path: Path) -> None:
    given = parse_check(["--num_csx=4", "p.py", "--steps", "9"], tmp_path, tmp_path)
    assert (given.target, given.words, given.steps) == (Path("p.py"), ("--steps", "9"), STEPS)
    assert given.num_csx == 4
    assert not given.is_params
    assert parse_check(["p.yaml"], tmp_path, tmp_path).is_params


def test_cluster_file_is_found_or_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("")
    found = parse_check(["p.py"], tmp_path, tmp_path)
    assert (found.cluster, found.is_cluster_typed) == (tmp_path / "cluster.yaml", False)
    named = parse_check(["--cluster=c.yaml", "p.py"], tmp_path, tmp_path)
    assert (named.cluster, named.is_cluster_typed) == (Path("c.yaml"), True)


@pytest.mark.parametrize("words", [[], ["--steps=0", "p.py"], ["--num_csx=0", "p.py"]])
def test_wrong_command_line_is_refused(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_check(words, tmp_path, tmp_path)
    assert caught.value.code == 2
