"""A running cluster as its user controls it, in this process or on Ray.

Both kinds of cluster run the same Coordinator; on Ray it is an actor of its own, to which commands
travel. ``appliance.starting`` starts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from appliance.coordinator.times import EmulatedClock, MeasuredRecord
from waferstream.core.errors import ApplianceRuntimeServerError
from waferstream.core.roles.role import Command, Result


@dataclass(frozen=True)
class Standing:
    """What a coordinator has learnt since its start: buffers, emulated clock, activities."""

    buffers: Mapping[str, torch.Tensor]
    clock: EmulatedClock
    measured: MeasuredRecord


class Cluster(Protocol):
    """A running cluster.

    After ``shutdown`` every command raises ApplianceRuntimeServerError.
    """

    def do(self, command: Command[Result]) -> Result:
        """Do what a command says (appliance.coordinator.commands), or refuse it."""

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, 0 if unknown, in any thread."""

    def shutdown(self) -> None:
        """End every process that the cluster started. Idempotent."""


def cluster_ended() -> ApplianceRuntimeServerError:
    """Return the error for a call to a cluster after its end."""
    return ApplianceRuntimeServerError(
        "the cluster has ended",
        code="cluster-ended",
        rule="a job that fails or is interrupted ends its cluster",
        remedy="make a new backend and continue from a checkpoint",
    )
