"""Answers on their way to a client who leaves."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from waferstream.core.serving import Sampling
from waferstream.serving.accounts.callers import Anybody
from waferstream.serving.answers import Answers
from waferstream.serving.http.streams import Choices
from waferstream.serving.questions import Question

WAIT_S = 30


def test_answer_that_is_asked_while_its_client_leaves_is_cancelled(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the thread that asks has said so."""
    is_asking, may_go_on, cancelled = (threading.Event() for _ in range(3))
    ask = answers.ask

    def ask_slowly(*args: Any) -> Any:
        is_asking.set()
        may_go_on.wait(WAIT_S)
        answer = ask(*args)
        cancel = answer.cancel

        def cancel_and_tell() -> None:
            cancel()
            cancelled.set()

        monkeypatch.setattr(answer, "cancel", cancel_and_tell)
        return answer

    async def leave() -> None:
        question = Question((1, 2), Sampling(1), max_tokens=80)
        asking = asyncio.create_task(Choices.asked(answers, [question], Anybody()))
        await asyncio.to_thread(is_asking.wait, WAIT_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        may_go_on.set()

    monkeypatch.setattr(answers, "ask", ask_slowly)
    asyncio.run(leave())
    assert cancelled.wait(WAIT_S)
    assert answers.load.running == answers.load.waiting == 0
