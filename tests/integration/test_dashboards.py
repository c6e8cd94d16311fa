"""Every expression of every panel of the dashboards has data: with a real Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from scripts.dashboards import DASHBOARDS
from tests.support.management.prometheus import NEEDS_PROMETHEUS, prometheus
from waferstream.management.door.metrics import CONTENT_TYPE, exposition
from waferstream.management.model.telemetry import (
    MANAGEMENT_METRICS,
    WORKFLOW_METRICS,
    Metric,
    Numbers,
    Sample,
    Telemetry,
)

pytestmark = NEEDS_PROMETHEUS

WORKFLOW, ROLE = "wflow-1", "csx-0"


def _sample(name: str, metric: Metric) -> Sample:
    labels = tuple(ROLE if label == "role" else label for label in metric.labels)
    return Sample(metric=name, value=time.monotonic(), labels=labels)


def _numbers() -> Numbers:
    """Return a value for every number there is, which grows."""
    told = Telemetry(samples=tuple(_sample(*each) for each in WORKFLOW_METRICS.items()))
    stalled = Sample(metric="role_seconds_total", value=time.monotonic(), labels=(ROLE, "input"))
    told = told.model_copy(update={"samples": (*told.samples, stalled)})
    of_management = tuple(_sample(*each) for each in MANAGEMENT_METRICS.items())
    return Numbers(management=of_management, workflows={WORKFLOW: told})


@pytest.fixture
def target() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.end_headers()
            self.wfile.write(exposition(_numbers()))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield "{}:{}".format(*server.server_address)
        finally:
            server.shutdown()
            thread.join()


def test_every_expression_of_every_panel_has_data(tmp_path: Path, target: str) -> None:
    with prometheus(tmp_path, target) as server:
        for _, rows in DASHBOARDS.values():
            for panels in rows.values():
                for panel in panels:
                    for expression in panel.queries.values():
                        server.wait_for(_filled(expression))


def _filled(expression: str) -> str:
    """Return an expression with values for the variables of its dashboard."""
    for name, value in {"workflow": WORKFLOW, "role": ROLE, "__rate_interval": "10s"}.items():
        expression = expression.replace(f"${name}", value)
    return expression
