"""Machines to compare, as they are typed."""

from __future__ import annotations

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.scaling.gpus import CLUSTERS
from waferstream.scaling.plan_request import Asked, PlanRequest, parse_asked


def test_machines_have_a_count_or_none() -> None:
    assert parse_asked("h100:64, B200", CLUSTERS, "--gpu") == (Asked("H100", 64), Asked("B200"))


@pytest.mark.parametrize("text", ["", "h300", "h100:8,,b200"])
def test_what_is_no_machine_is_refused(text: str) -> None:
    with raises(ConfigError, "unknown-machine-kind"):
        parse_asked(text, CLUSTERS, "--gpu")


@pytest.mark.parametrize("text", ["h100:0", "h100:x", "h100:", "h100:100000"])
def test_what_is_no_count_is_refused_with_one_that_is(text: str) -> None:
    with raises(ConfigError, "out-of-range") as caught:
        parse_asked(text, CLUSTERS, "--gpu")
    assert "H100:8" in str(caught.value.remedy)


@pytest.mark.parametrize("tokens", [0, -1, 1e30, float("nan")])
def test_a_budget_that_no_run_has_is_refused(tokens: float) -> None:
    with raises(ConfigError, "token-budget-out-of-range"):
        PlanRequest((Asked("CS-3"),), (Asked("H100"),), tokens)
