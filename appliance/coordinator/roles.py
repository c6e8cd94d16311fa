"""The roles of one running cluster, as the coordinator reaches them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from wsc.core.optimizer.spec import OptimizerSpec
from wsc.core.program.program import TensorSpec
from wsc.core.roles.installation import Installation
from wsc.core.roles.role import Job, Report
from wsc.core.units import MIB

PART_BYTES = 16 * MIB
"""Tensors that travel at once: Ray's object store, sender and receiver each hold them."""


class Roles(Protocol):
    """The roles of one running cluster; ``server`` is the name of a weight server.

    Every method raises a WaferStreamError: the role's own, or an ApplianceRuntimeServerError for
    any other exception and for a role that died. After a failed ``run`` the roles are unusable
    and must be shut down; but for ``settle``, and the weights of the servers after it.
    """

    def run(self, job: Job) -> list[Report]:
        """Run a job on every role; return when all have finished."""

    def install(self, installation: Installation) -> None:
        """Give every role its part of a program, in parallel where possible."""

    def train_with(self, server: str, optimizer: OptimizerSpec) -> None:
        """Call ``WeightHolder.train_with`` of one weight server."""

    def fill(self, server: str, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        """Call ``WeightHolder.fill`` of one weight server."""

    def layout(self, server: str, states: Collection[str]) -> list[TensorSpec]:
        """Call ``WeightHolder.layout`` of one weight server."""

    def save(
        self, server: str, path: Path, offsets: Mapping[str, int], is_background: bool
    ) -> None:
        """Call ``WeightHolder.save`` of one weight server."""

    def finish_saving(self, server: str) -> None:
        """Call ``WeightHolder.finish_saving`` of one weight server."""

    def restore(self, server: str, path: Path, state: str, strict: bool) -> None:
        """Call ``WeightHolder.restore`` of one weight server."""

    def masters(self, server: str, names: Sequence[str], state: str = "model") -> list[np.ndarray]:
        """Call ``WeightHolder.masters`` of one weight server."""

    def settle(self, servers: Collection[str]) -> frozenset[int]:
        """End a failed job on every role, so that the servers answer; return what they hold.

        Returns:
            The steps of the job after which weights stand: one if all servers agree, none if
            the job updates nothing.
        """

    def shutdown(self) -> None:
        """End every role with its processes, sockets and memory. Idempotent."""


class FailureLimit(Protocol):
    """The failures that recovery below the coordinator has met, and may answer."""

    num_failures: int
    """The failures since the last finished step."""

    num_allowed: int
    """The failures in a row that may be answered inside the cluster."""


def in_parts(num_bytes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield the names of tensors, as many at a time as may travel at once, and at least one.

    Args:
        num_bytes: The size of each tensor by name.
    """
    part: list[str] = []
    part_bytes = 0
    for name, size in num_bytes.items():
        if part and part_bytes + size > PART_BYTES:
            yield part
            part, part_bytes = [], 0
        part.append(name)
        part_bytes += size
    if part:
        yield part
