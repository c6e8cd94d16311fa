"""Forty mistakes get good answers; those that need no torch are typed in this process, too."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from scripts.mistakes.answer import answer_of
from scripts.mistakes.catalogue import MISTAKES
from scripts.mistakes.folder import prepared
from scripts.mistakes.mistake import Mistake, Typed, nothing
from waferstream.cli.main import main

AT_ONCE = [
    pytest.param(typed, id=f"{mistake.number}-{place}")
    for mistake in MISTAKES
    for place, typed in enumerate(mistake.typed)
    if typed.words.startswith("waferstream ")
    and not typed.needs
    and not typed.environment
    and typed.prepare is nothing
]


def test_every_mistake_is_there_once() -> None:
    assert [each.number for each in MISTAKES] == list(range(1, 41))


@pytest.mark.parametrize("typed", AT_ONCE)
def test_mistake_is_answered_before_torch_is_needed(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with prepared(typed) as folder:
        monkeypatch.chdir(folder)
        before = set(folder.rglob("*"))
        try:
            code = main(shlex.split(typed.words)[1:])
        except SystemExit as end:
            code = int(str(end.code))
        told = capsys.readouterr().err.replace(f"{folder}/", "")
        assert code in typed.code
        assert [word for word in typed.expects if word not in told] == []
        assert set(folder.rglob("*")) == before
        monkeypatch.chdir(Path(__file__).parent)  # the folder is removed


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: str(each.number))
def test_answer_is_good(mistake: Mistake) -> None:
    assert [answer_of(typed).lacks for typed in mistake.typed] == [()] * len(mistake.typed)
