"""Wafers in processes of their own: the text of one process, whoever of them is lost."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.ray.roles import RecoverableRayRoles
from appliance.spec import RuntimeSpec
from tests.support.runs.served_folder import train_decoder
from waferstream.core.serving import AnswerFailed, Sampling
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
        return [Asked(answers, seed).text() for seed in range(NUM_QUESTIONS)]


@pytest.fixture(scope="module")
def on_ray(folder: Path) -> Iterator[Answers]:
    runtime = RuntimeSpec(kind="ray", stall_timeout_s=10.0)
    with Answers(Deployment(folder, wafers=3, runtime=runtime)) as answers:
        yield answers


class Asked:
    """A question under way."""

    def __init__(self, answers: Answers, seed: int) -> None:
        self._pieces: queue.Queue[Piece | AnswerFailed] = queue.Queue()
        tokens = answers.model.text.encode("def f(x):"[: seed + 3])
        temperature = 0.0 if seed % 2 else 1.0
        answers.ask(Question(tokens, Sampling(seed, temperature), 40), self._pieces.put)
        self._text = ""

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
    asked = [Asked(on_ray, seed) for seed in range(NUM_QUESTIONS)]
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
    asked = [Asked(on_ray, seed) for seed in range(NUM_QUESTIONS)]
    for each in asked:
        each.wait()
    os.kill(before, number)
    assert [each.text() for each in asked] == texts
    assert pid_of(on_ray, wafer) != before
