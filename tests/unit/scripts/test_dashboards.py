"""Grafana's dashboards: their files are what the code makes, and their numbers exist."""

from __future__ import annotations

import json
import re
from typing import Any

from scripts.dashboards import DASHBOARDS, DEPLOY, texts
from waferstream.management.model.telemetry import MANAGEMENT_METRICS, WORKFLOW_METRICS

KNOWN = {*MANAGEMENT_METRICS, *WORKFLOW_METRICS}


def test_files_are_what_the_code_makes() -> None:
    assert {name: (DEPLOY / name).read_text("utf-8") for name, _ in texts()} == dict(texts())


def test_every_number_is_shown_and_known() -> None:
    shown = {
        name
        for _, rows in DASHBOARDS.values()
        for panels in rows.values()
        for panel in panels
        for expression in panel.queries.values()
        for name in re.findall(r"waferstream_(\w+)", expression)
    }
    assert shown == KNOWN


def test_panels_and_their_curves_have_names_of_their_own() -> None:
    for _, text in texts():
        panels: list[dict[str, Any]] = json.loads(text)["panels"]
        numbers = [panel["id"] for panel in panels]
        assert len(set(numbers)) == len(numbers)
        for panel in panels:
            names = [target["refId"] for target in panel.get("targets", ())]
            assert names == sorted(set(names))
