"""Requests of many users over the emulated pipeline."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.machine.regions.published import DECODERS, DRAFTS
from waferstream.machine.regions.service import Service
from waferstream.simulator.service_load import Asked, Load, simulate
from waferstream.simulator.service_requests import Lengths, of_users

SERVICE = Service(DECODERS["llama-3.1-70b"], 8192)
DRAFTED = Service(DECODERS["llama-3.1-70b"], 8192, draft=DRAFTS["llama-3.1-70b"])


def _same(users: int) -> list[Asked]:
    return [Asked(0, 1, 40) for _ in range(users)]


def _mean_ps(load: Load) -> float:
    """Return the mean time of a token after the first one."""
    times = [(one.end_ps - one.first_ps) / (one.asked.output - 1) for one in load.answered]
    return sum(times) / len(times)


def test_request_alone_takes_what_the_clock_says() -> None:
    """From its arrival to its first token, whose prompt is counted in blocks, and to its last."""
    (one,) = simulate(SERVICE, [Asked(5, 1000, 30)]).answered
    prompt_ps = SERVICE.pipeline.prompt(1000).total_ps
    assert one.first_ps - 5 == pytest.approx(prompt_ps, rel=1e-3)
    assert one.end_ps - one.first_ps == SERVICE.tokens(1000, 29).total_ps


def test_users_share_the_pipeline_without_loss() -> None:
    """As many as there are tokens under way slow one another hardly; more share its rate."""
    slots = SERVICE.pipeline.full_speed_users(40)
    alone, full, crowd = (_mean_ps(simulate(SERVICE, _same(n))) for n in (1, slots, 4 * slots))
    assert full < 1.1 * alone
    assert crowd == pytest.approx(4 * slots * SERVICE.pipeline.interval_ps(40), rel=0.05)


@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(1, 60))
def test_more_users_never_raise_the_speed_of_one(users: int, more: int) -> None:
    """With a draft to one per cent: the last ones under way have more stages for guesses."""
    for service, tolerance in ((SERVICE, 1.0), (DRAFTED, 1.01)):
        few, many = (_mean_ps(simulate(service, _same(n))) for n in (users, users + more))
        assert few <= tolerance * many


def test_nothing_is_lost_and_the_busiest_stage_is_not_overbooked() -> None:
    """Each request is answered once, in the order in which it waited."""
    requests = of_users(50, 3, 10**12, Lengths(), seed=2)
    load = simulate(DRAFTED, requests)
    assert len(load.answered) == 150
    assert 0 < load.busy_ps <= load.duration_ps
    assert all(one.arrival_ps < one.first_ps <= one.end_ps for one in load.answered)


def test_same_seed_gives_the_same_load() -> None:
    """And another one another load."""
    first, again, other = (
        simulate(DRAFTED, of_users(20, 2, 10**12, Lengths(), seed)).duration_ps
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_request_beyond_the_cache_is_refused() -> None:
    """Before anything is simulated; so is nothing at all."""
    with raises(ConfigError, "request-exceeds-cache"):
        simulate(SERVICE, [Asked(0, SERVICE.layout.cache_tokens, 1)])
    with raises(ConfigError, "no-requests"):
        simulate(SERVICE, [])
