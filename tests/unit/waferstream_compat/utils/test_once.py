"""Functions that run once."""

from __future__ import annotations

from waferstream_compat.utils.once import call_once


def test_a_second_call_returns_the_first_result() -> None:
    calls = []

    @call_once()
    def count(step: int) -> int:
        calls.append(step)
        return step

    assert [count(4), count(5)] == [4, 4]
    assert calls == [4]
