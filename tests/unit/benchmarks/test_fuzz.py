"""Parsers answer mutated inputs with typed errors alone, and the campaign notices what does not."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.__main__ import main
from benchmarks.fuzz.campaign import Outcome, Target, run_target, shares, try_input
from benchmarks.fuzz.targets import all_targets
from waferstream.core.errors import DataError

SLOW = {"checkpoint"}
"""Targets that start a process for some inputs."""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAFERSTREAM_USER_CODE", "refuse")
        yield tuple(
            target
            for target in all_targets(tmp_path_factory.mktemp("fuzz"))
            if target.name not in SLOW
        )


@settings(max_examples=25)
@given(random=st.randoms(use_true_random=False))
def test_every_parser_answers_with_typed_errors(
    targets: tuple[Target, ...], random: Random
) -> None:
    """Hypothesis chooses the mutations, and keeps those that fail."""
    for target in targets:
        outcome = Outcome(target.name)
        try_input(target, target.make(random), outcome)
        assert not outcome.findings


def test_valid_inputs_are_accepted(targets: tuple[Target, ...]) -> None:
    """Every target reads some inputs to their end, so that more than its first check is tested."""
    for target in targets:
        assert run_target(target, 80, seed=1).accepted, target.name


def read_oddly(content: bytes) -> object:
    match content:
        case b"refused":
            raise DataError("no", code="no-such-data")
        case b"typed":
            raise UnicodeError
        case b"untyped":
            raise KeyError("x")
        case b"slow":
            time.sleep(30)
    return None


def test_campaign_finds_untyped_errors_and_hangs() -> None:
    """An error of another type and an input without end are findings, with their input."""
    target = Target("odd", 1, lambda _: b"", read_oddly, (UnicodeError,), limit_s=0.05)
    outcome = Outcome("odd")
    for content in (b"fine", b"refused", b"typed", b"untyped", b"untyped", b"slow"):
        try_input(target, content, outcome)
    assert (outcome.inputs, outcome.accepted) == (6, 1)
    assert outcome.refused == {"no-such-data": 1, "UnicodeError": 1}
    kinds = {kind.split()[0]: finding for kind, finding in outcome.findings.items()}
    assert {kind: finding["count"] for kind, finding in kinds.items()} == {
        "KeyError": 2,
        "TooSlowError": 1,
    }
    assert bytes.fromhex(kinds["KeyError"]["input"]) == b"untyped"


def test_seed_determines_the_inputs(targets: tuple[Target, ...]) -> None:
    """A finding can be repeated."""
    for target in targets:
        one, other = ([target.make(random) for _ in range(5)] for random in (Random(7), Random(7)))
        assert one == other


def test_inputs_are_shared_among_targets(targets: tuple[Target, ...]) -> None:
    counts = [count for _, count in shares(targets, 10_000)]
    assert all(counts)
    assert 0.95 <= sum(counts) / 10_000 <= 1.05


def test_main_writes_what_it_found(tmp_path: Path) -> None:
    """Of the refused inputs, the number of each code."""
    path = tmp_path / "fuzz.json"
    words = ["--inputs", "200", "--only", "CSV of rows", "--only", "stored workflow"]
    assert main([*words, "--json", str(path)]) == 0
    results = {result["name"]: result for result in json.loads(path.read_text())["results"]}
    assert set(results) == {"CSV of rows", "stored workflow"}
    assert sum(result["inputs"] for result in results.values()) >= 198
    assert "file-not-csv" in results["CSV of rows"]["refused"]
    for result in results.values():
        assert result["inputs"] == result["accepted"] + sum(result["refused"].values())


def test_main_leaves_nothing_and_keeps_the_state_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Artifacts are sealed with a key of the campaign, whose folder ends with it."""
    state, temporary = tmp_path / "state", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("WAFERSTREAM_STATE", str(state))
    monkeypatch.delenv("WAFERSTREAM_USER_CODE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = dict(os.environ)
    assert main(["--inputs", "20", "--only", "compile artifact"]) == 0
    assert dict(os.environ) == before
    assert not state.exists()
    assert [*temporary.iterdir()] == []


def test_main_refuses_a_name_of_no_target() -> None:
    """Else a mistyped name would be reported as no finding."""
    with pytest.raises(SystemExit) as ended:
        main(["--only", "CSV of row"])
    assert ended.value.code == 2
