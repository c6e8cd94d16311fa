"""Reports of load."""

from __future__ import annotations

import pytest

from waferstream.machine.regions.published import DECODERS, DRAFTS
from waferstream.machine.regions.service import Service
from waferstream.reports.service.load import LoadPoint, LoadReport, of_closed_loop, of_requests
from waferstream.simulator.service_load import Asked
from waferstream.simulator.service_requests import Lengths

LENGTHS = Lengths(prompt=200, output=50)
SERVICE = Service(DECODERS["llama-3.1-70b"], 8192, draft=DRAFTS["llama-3.1-70b"])


def _users(users: int) -> LoadPoint:
    return of_closed_loop(SERVICE, users, LENGTHS, seed=1)


def test_more_users_give_more_tokens_and_each_has_fewer() -> None:
    """And energy and cost of a token fall while the wafers have time for more."""
    one, ten = _users(1), _users(10)
    assert ten.tokens_per_s > 1.5 * one.tokens_per_s
    assert ten.speed_p50 < one.speed_p50
    assert ten.first_token_p99_s > one.first_token_p50_s
    assert ten.utilization > one.utilization
    assert ten.per_million_tokens.kwh < one.per_million_tokens.kwh
    assert ten.per_million_tokens.usd < one.per_million_tokens.usd


def test_energy_and_cost_follow_from_power_price_and_time() -> None:
    """Four systems, idle at 80 % of 23 kW, each with its hosts."""
    point = of_requests(SERVICE, "one", [Asked(0, 10, 1000)])
    hours = 4 * 1e6 / point.tokens_per_s / 3600
    share = 0.8 + 0.2 * point.utilization
    kwh = 1.56 * (23 * share + 1.25 * 0.47) * hours
    assert point.per_million_tokens.kwh == pytest.approx(kwh)
    assert point.per_million_tokens.usd == pytest.approx(53.5 * hours + 0.08 * kwh)


def test_gpus_hold_the_weights_and_as_many_users_as_their_memory() -> None:
    """A node of eight for 70B; a batch of more users gives each less."""
    report = LoadReport("llama-3.1-70b", SERVICE, LENGTHS, (_users(1),))
    assert report.gpus == 8
    points = report.gpu_points()
    assert [one.users for one in points] == sorted(one.users for one in points)
    assert points[0].speed > points[-1].speed
    assert points[0].tokens_per_s < points[-1].tokens_per_s
    assert points[0].speed < report.points[0].speed_p50 / 5
    assert points[0].per_million_tokens.usd > points[-1].per_million_tokens.usd


def test_text_marks_what_is_uncertain() -> None:
    """The price is an estimate."""
    text = LoadReport("llama-3.1-70b", SERVICE, LENGTHS, (_users(1),)).text()
    assert "an estimate" in text
    assert "1 user " in text
