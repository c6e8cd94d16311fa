"""The expressions of all panels of the dashboards, for one job and one role."""

from __future__ import annotations

from collections.abc import Iterator
from string import Template

from scripts.dashboards import DASHBOARDS


def expressions(workflow: str, role: str) -> Iterator[str]:
    """Yield all expressions, with values for the variables of their dashboards."""
    values = {"workflow": workflow, "role": role, "__rate_interval": "10s"}
    for _, rows in DASHBOARDS.values():
        for panels in rows.values():
            for expression in (each for panel in panels for each in panel.queries.values()):
                yield Template(expression).substitute(values)
