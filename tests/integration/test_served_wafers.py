"""Wafers in processes of their own: the text of one process, whoever of them is lost."""

from __future__ import annotations

import itertools
import os
import queue
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from appliance.ray.roles import RecoverableRayRoles
from appliance.spec import RuntimeSpec
from tests.support.runs.served_folder import train_decoder
from waferstream.core.serving import AnswerFailed, Sampling, Sharing
from waferstream.serving.answers import Answers
from waferstream.serving.deployment import Deployment
from waferstream.serving.questions import Piece, Question

WAIT_S = 120
NUM_QUESTIONS = 6

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_decoder(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def texts(folder: Path) -> list[str]:
    """Texts of one process, each asked for alone."""
    with Answers(Deployment(folder)) as answers:
        return [Asked.by_number(answers, seed).text() for seed in range(NUM_QUESTIONS)]


@pytest.fixture(scope="module")
def on_ray(folder: Path) -> Iterator[Answers]:
    runtime = RuntimeSpec(kind="ray", stall_timeout_s=10.0)
    with Answers(Deployment(folder, wafers=3, runtime=runtime)) as answers:
        yield answers


class Asked:
    """A question under way."""

    def __init__(self, answers: Answers, question: Question) -> None:
        self._pieces: queue.Queue[Piece | AnswerFailed] = queue.Queue()
        answers.ask(question, self._pieces.put)
        self._text = ""

    @classmethod
    def by_number(cls, answers: Answers, number: int) -> Self:
        tokens = answers.model.text.encode("def f(x):"[: number + 3])
        temperature = 0.0 if number % 2 else 1.0
        return cls(answers, Question(tokens, Sampling(number, temperature), 40))

    def wait(self) -> bool:
        """Wait for a piece; return whether it is the last one."""
        piece = self._pieces.get(timeout=WAIT_S)
        assert isinstance(piece, Piece), piece
        self._text += piece.said.text
        return piece.end is not None

    def text(self) -> str:
        while not self.wait():
            pass
        return self._text


def pid_of(answers: Answers, wafer: str) -> int:
    roles: Any = answers._wafers._roles
    assert isinstance(roles, RecoverableRayRoles)
    return roles.presences[wafer].pid


def test_texts_are_those_of_one_process(on_ray: Answers, texts: list[str]) -> None:
    asked = [Asked.by_number(on_ray, seed) for seed in range(NUM_QUESTIONS)]
    assert [each.text() for each in asked] == texts
    assert len({pid_of(on_ray, f"wafer-{i}") for i in range(3)} | {os.getpid()}) == 4


@pytest.mark.parametrize(
    ("wafer", "number"),
    [("wafer-0", signal.SIGKILL), ("wafer-2", signal.SIGKILL), ("wafer-1", signal.SIGSTOP)],
)
def test_lost_wafer_is_replaced_and_no_client_notices(
    on_ray: Answers, texts: list[str], wafer: str, number: int
) -> None:
    """It is killed, or stopped, while answers stream."""
    before = pid_of(on_ray, wafer)
    asked = [Asked.by_number(on_ray, seed) for seed in range(NUM_QUESTIONS)]
    for each in asked:
        each.wait()
    os.kill(before, number)
    assert [each.text() for each in asked] == texts
    assert pid_of(on_ray, wafer) != before


class Crowd:
    """Many questions of one deployment, alone or in company."""

    NUM = 200
    TOKENS = 12

    def __init__(self, answers: Answers, life_s: float) -> None:
        self._answers = answers
        self._life_s = life_s

    def texts(self, at_once: int, on_text: Callable[[], None] = lambda: None) -> list[str]:
        """Return all texts; ``on_text`` is called after each, while others are under way."""
        found = []
        for first in range(0, self.NUM, at_once):
            numbers = range(first, min(first + at_once, self.NUM))
            for asked in [self._ask(number) for number in numbers]:
                found.append(asked.text())
                on_text()
        return found

    def _ask(self, number: int) -> Asked:
        prompt = self._answers.model.text.encode(f"def f{number % 7}(x, y):\n    return " * 4)
        sampling = Sampling(number, 0.0 if number % 2 else 1.0)
        sharing = Sharing(life_s=self._life_s)
        question = Question(prompt, sampling, self.TOKENS, sharing=sharing)
        return Asked(self._answers, question)


@pytest.fixture(scope="module")
def many_texts(folder: Path) -> list[str]:
    """Texts of 200 prompts, greedy and sampled, each asked for alone, of which nothing is kept."""
    with Answers(Deployment(folder)) as answers:
        return Crowd(answers, 0.0).texts(1)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("wafers", [1, 2, 4, 0])
def test_texts_are_one_over_wafers_company_cache_and_draft(
    folder: Path, many_texts: list[str], wafers: int
) -> None:
    """0 stands for a wafer for each segment."""
    with Answers(Deployment(folder)) as answers:
        wafers = wafers or len(answers._wafers._specs[0].program.segments)
    for draft in (None, folder):
        with Answers(Deployment(folder, wafers=wafers, draft=draft)) as answers:
            for life_s, at_once in ((0.0, 17), (300.0, 1), (300.0, 17)):
                assert Crowd(answers, life_s).texts(at_once) == many_texts


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_texts_are_one_over_twenty_kills(folder: Path, many_texts: list[str]) -> None:
    """A random wafer is killed after every tenth text, while 16 others are under way."""
    runtime = RuntimeSpec(kind="ray", stall_timeout_s=10.0)
    generator, num_texts = random.Random(0), itertools.count(1)
    with Answers(Deployment(folder, wafers=4, runtime=runtime)) as answers:

        def kill() -> None:
            if next(num_texts) % 10 == 0:
                wafer = f"wafer-{generator.randrange(4)}"
                os.kill(pid_of(answers, wafer), signal.SIGKILL)

        assert Crowd(answers, 300.0).texts(17, kill) == many_texts
