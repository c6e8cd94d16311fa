"""The launches of a workflow: processes that, one after the other, are one run.

Management ends a launch between two steps and starts another one, with other systems perhaps. Each
checkpoint says which workflow wrote it and where its run began, so that the next launch goes on
with the plan of the first one, whatever checkpoint that one was asked to start from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from waferstream.management.model.launched import SYSTEMS, launched_workflow
from waferstream.management.model.telemetry import Telemetry
from waferstream.management.model.workflow import Prediction, Progress

STATE = "workflow"
"""The state of a checkpoint that says which run wrote it, and why."""


class Reporter(Protocol):
    """The way from a launch to the management; a call returns at once and never fails."""

    def progressed(self, progress: Progress) -> None:
        """Tell how far the run is."""

    def measured(self, telemetry: Telemetry) -> None:
        """Tell the numbers of the run and of its roles."""

    def predicted(self, prediction: Prediction) -> None:
        """Tell how long the run takes on the emulated machine."""


@dataclass(frozen=True)
class Launch:
    """A launch of a workflow, in one of the phases of its params file.

    Attributes:
        workflow: The name of the workflow.
        num_csx: Systems that the workflow asks for; batches are cut for them in each launch.
        phase: The phase, counted from 1.
        num_phases: The phases of the file.
        reporter: Whom it tells what happens; None where nobody listens.
    """

    workflow: str
    num_csx: int = 1
    phase: int = 1
    num_phases: int = 1
    reporter: Reporter | None = None

    @classmethod
    def of_environment(cls, reporter: Reporter | None = None) -> Launch | None:
        """Return the launch that this process is; None where nobody manages it."""
        workflow, systems = launched_workflow(), os.environ.get(SYSTEMS, "1")
        return cls(workflow, int(systems), reporter=reporter) if workflow else None

    def in_phase(self, phase: int, num_phases: int) -> Launch:
        """Return the launch in one of the phases of its params file, counted from 1."""
        return replace(self, phase=phase, num_phases=num_phases)

    @property
    def folder_name(self) -> str:
        """The name of the link, in the folder of the model, to that of the run."""
        return f".{self.workflow}-{self.phase}"

    @property
    def is_last_phase(self) -> bool:
        """Whether the workflow ends with this phase."""
        return self.phase == self.num_phases

    def state(self, start: int, *, is_planned: bool) -> dict[str, Any]:
        """Return what a checkpoint says of the run.

        Args:
            start: Steps that were done before the run.
            is_planned: Whether the run would have written the checkpoint without being ended.
        """
        about = {"name": self.workflow, "phase": self.phase}
        return about | {"start": start, "is_planned": is_planned}

    def has_written(self, objects: Mapping[str, Any]) -> bool:
        """Return whether a checkpoint is of this workflow, in this phase or a later one."""
        match objects.get(STATE):
            case {"name": self.workflow, "phase": int(phase), "start": int()}:
                return phase >= self.phase
        return False

    def has_paused(self, objects: Mapping[str, Any]) -> bool:
        """Return whether only the end of a launch in this phase has left a checkpoint."""
        match objects.get(STATE):
            case {"name": self.workflow, "phase": self.phase, "is_planned": False}:
                return True
        return False

    def is_over(self, objects: Mapping[str, Any]) -> bool:
        """Return whether a checkpoint of this workflow is of a later phase."""
        return bool(objects[STATE]["phase"] > self.phase)


def start_of(objects: Mapping[str, Any]) -> int:
    """Return the steps that were done before the run that wrote a checkpoint."""
    return int(objects[STATE]["start"])
