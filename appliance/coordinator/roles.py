"""The roles of one running cluster, as the coordinator reaches them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from waferstream.core.roles.role import Command, Job, Report, Result
from waferstream.core.units import MIB

PART_BYTES = 16 * MIB
"""Tensors that travel at once: Ray's object store, sender and receiver each hold them."""


class Roles(Protocol):
    """The roles of one running cluster.

    Every method raises a WaferStreamError: the role's own, or an ApplianceRuntimeServerError for
    any other exception and for a role that died. After a failed ``run`` the roles are unusable
    and must be shut down; but for ``settle``, and the weights of the servers after it.
    """

    def run(self, job: Job) -> list[Report]:
        """Run a job on every role; return when all have finished."""

    def do(self, to: Collection[str] | None, command: Command[Result]) -> dict[str, Result]:
        """Let roles do what a command says, in parallel where possible; None means every role.

        Returns:
            The result of each role, by its name.
        """

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
