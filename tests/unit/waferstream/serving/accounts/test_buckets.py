from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.bucket import Bucket
from waferstream.serving.accounts.buckets import Buckets
from waferstream.serving.accounts.keys import RateLimits

ASKED = st.lists(
    st.tuples(st.floats(0, 30), st.integers(1, 120), st.floats(0, 1)), min_size=1, max_size=60
)
"""Seconds since the request before, the most tokens, and the share of them that is used."""


@given(asked=ASKED)
def test_never_more_is_used_in_any_time_than_the_bucket_allows(
    asked: list[tuple[float, int, float]],
) -> None:
    """The capacity, and what comes back in the time."""
    bucket, now_s = Bucket.full(100, 60, 0), 0.0
    used: list[tuple[float, int]] = []
    for after_s, most, share in asked:
        now_s += after_s
        if bucket.wait_s(most, now_s) == 0:
            tokens = int(most * share)
            bucket.take(most, now_s)
            bucket.take(tokens - most, now_s)
            used.append((now_s, tokens))
    for first, (begin_s, _) in enumerate(used):
        total = 0
        for end_s, tokens in used[first:]:
            total += tokens
            assert total <= 100 + (end_s - begin_s) * 100 / 60 + 1e-6


@given(asked=ASKED)
def test_waiting_as_told_is_enough_and_not_too_long(asked: list[tuple[float, int, float]]) -> None:
    bucket, now_s = Bucket.full(100, 60, 0), 0.0
    for after_s, most, _ in asked:
        now_s += after_s
        wait_s = bucket.wait_s(most, now_s)
        if math.isinf(wait_s):
            assert most > 100
            continue
        assert wait_s == 0 or bucket.wait_s(most, now_s + wait_s * 0.99) > 0
        now_s += wait_s
        assert bucket.wait_s(most, now_s) < 1e-6
        bucket.take(most, now_s)


def test_unused_tokens_come_back_and_never_overflow() -> None:
    bucket = Bucket.full(100, 60, 0)
    bucket.take(100, 0)
    assert bucket.left(30) == pytest.approx(50)
    bucket.take(-80, 30)
    assert bucket.left(30) == 100
    assert bucket.reset_s(30) == 0


def test_clock_that_is_set_back_gives_nothing_and_locks_nobody_out() -> None:
    bucket = Bucket.full(100, 60, 1000)
    bucket.take(100, 1000)
    assert bucket.left(0) == 0
    bucket.take(0, 0)
    assert bucket.left(30) == pytest.approx(50)


def test_scarcest_limit_is_named() -> None:
    buckets = Buckets.of(RateLimits(requests_per_minute=1, tokens_per_day=1000), 0)
    assert buckets.shortage(1000, 0) is None
    buckets.take(1, 600, 0)
    found = buckets.shortage(400, 0)
    assert found is not None
    assert (found.of, found.per, found.wait_s) == ("requests", "minute", 60)
    found = buckets.shortage(500, 60)
    assert found is not None
    assert (found.of, found.per) == ("tokens", "day")
