"""Reserved throughput: a tenant gets it whatever others ask, and leaves them the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.serving.batcher import Batcher
from appliance.serving.limits import Limits
from tests.support.models.hashing_stage import HashingStage
from waferstream.core.serving import Request, Sampling, TokenDrawn

ROW_S = 0.001
"""What a row of a step takes; a step takes as much again."""

TENANT = Request("mine", (1, 2, 3), 400, Sampling(1), tenant="mine", priority=1)


def tokens_per_s(
    reserved: float, num_others: int = 20, seconds: float = 2.0
) -> tuple[float, float]:
    """Return what a tenant and what the others get of a machine that makes 500 alone."""
    now_s = 0.0
    batcher = Batcher(Limits(1000, 100_000, step_tokens=64), now=lambda: now_s)
    stage = HashingStage()
    had = {"mine": 0, "others": 0}
    tenants = {f"other-{each}": "others" for each in range(num_others)} | {"mine": "mine"}
    for each in range(num_others):
        batcher.submit(replace(TENANT, name=f"other-{each}", tenant="others", priority=0))
    batcher.submit(replace(TENANT, reserved_tokens_per_s=reserved))
    while now_s < seconds and not batcher.is_idle:
        parts = batcher.plan()
        now_s += ROW_S * (1 + sum(len(part.tokens) for part in parts))
        for event in batcher.take(stage.extend(parts).numpy()):
            if isinstance(event, TokenDrawn):
                had[tenants[event.request]] += 1
    return had["mine"] / now_s, had["others"] / now_s


@pytest.mark.parametrize("reserved", [60, 120, 180])
def test_tenant_has_what_it_reserved_whatever_others_ask(reserved: float) -> None:
    """It would have 45 tokens a second as one of 21."""
    mine, others = tokens_per_s(reserved)
    assert mine == pytest.approx(reserved, rel=0.03)
    assert others > 500


def test_what_is_not_reserved_is_shared() -> None:
    assert tokens_per_s(0)[0] == pytest.approx(tokens_per_s(10)[0], rel=0.03)
    assert tokens_per_s(0)[0] == pytest.approx(1000 / 22, rel=0.1)


def test_tenant_alone_is_not_slowed_to_its_reservation() -> None:
    assert tokens_per_s(10, num_others=0, seconds=0.5)[0] == pytest.approx(500, rel=0.05)


def test_reservation_beyond_the_machine_leaves_nothing() -> None:
    mine, others = tokens_per_s(10_000, seconds=0.5)
    assert mine == pytest.approx(500, rel=0.05)
    assert others < 50
