"""Every expression of every panel of the dashboards has data: with a real Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.management.dashboards import expressions
from tests.support.management.prometheus import NEEDS_PROMETHEUS, prometheus
from tests.support.management.seeded import BREATHING, RUNNING, TOKENS, Seeded, seeded
from waferstream.management.model.event import Ended
from waferstream.management.model.job import Phase

pytestmark = NEEDS_PROMETHEUS

_TURN_S = 0.2


def test_every_expression_of_every_panel_has_data(tmp_path: Path) -> None:
    """Of a management whose jobs run and wait, of which one starts meanwhile."""
    with (
        seeded(tmp_path) as appliance,
        _turning(appliance),
        prometheus(tmp_path, appliance.url, TOKENS["root"]) as server,
    ):
        appliance.note(RUNNING, Ended(result=Phase.SUCCEEDED))
        for expression in expressions(BREATHING, "csx-0"):
            server.wait_for(expression)


def test_numbers_of_an_ended_job_are_gone(tmp_path: Path) -> None:
    with (
        seeded(tmp_path) as appliance,
        prometheus(tmp_path, appliance.url, TOKENS["root"]) as server,
    ):
        of_job = f'waferstream_power_watts{{workflow="{BREATHING}"}}'
        assert len(server.wait_for(of_job)) == 4
        appliance.note(BREATHING, Ended(result=Phase.SUCCEEDED))
        server.wait_for(f"absent({of_job})")


@contextmanager
def _turning(appliance: Seeded) -> Iterator[None]:
    """Let the management decide, and its run tell numbers, over and over."""
    over = threading.Event()

    def turn() -> None:
        while not over.wait(_TURN_S):
            appliance.tell(BREATHING, 4)
            appliance.manager.tick()

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
