"""Workflows as they were read last, so that those that have not changed are not parsed again."""

from __future__ import annotations

from waferstream.management.model.workflow import Workflow
from waferstream.management.store.bodies import read_body

_MOST = 4096
"""Workflows in memory; beyond, it begins anew."""


class Memory:
    """Unfinished workflows by name, each with the body that it was read from.

    Threads may share it: workflows never change, and entries are replaced as a whole.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Workflow]] = {}

    def workflow(self, name: str, body: str) -> Workflow:
        """Return the workflow that a body describes."""
        known = self._known.get(name)
        if known is not None and known[0] == body:
            return known[1]
        workflow = read_body(Workflow, body)
        self.keep(workflow, body)
        return workflow

    def keep(self, workflow: Workflow, body: str) -> None:
        """Remember a workflow until it ends."""
        if workflow.ended_s is not None:
            self._known.pop(workflow.name, None)
            return
        if len(self._known) >= _MOST:
            self._known = {}
        self._known[workflow.name] = (body, workflow)
