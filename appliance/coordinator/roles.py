"""The roles of one running cluster, as the coordinator reaches them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from waferstream.checkpoint import parameter_of
from waferstream.core.errors import WaferStreamError
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.stream_plan import assign_servers
from waferstream.core.roles.names import server_name
from waferstream.core.roles.role import Command, Job, Report, Result, RoleSpec
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


class Owners:
    """The weight servers of a cluster, and the parameters of each.

    Args:
        parameters: The parameters of the model.
        num_servers: The number of weight servers.
    """

    def __init__(self, parameters: Sequence[TensorSpec], num_servers: int) -> None:
        self._owner = assign_servers(parameters, num_servers)
        self.servers = [server_name(index) for index in range(num_servers)]

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters, sorted."""
        return sorted(self._owner)

    def is_owned(self, name: str) -> bool:
        """Return whether a tensor of the model is a parameter; others are buffers."""
        return name in self._owner

    def by_server(self, names: Iterable[str], state: str) -> dict[str, list[str]]:
        """Return the tensors of a state that each weight server owns, for those that own some."""
        owned: dict[str, list[str]] = {}
        for name in names:
            parameter = parameter_of(name, state)
            if parameter in self._owner:
                owned.setdefault(self.servers[self._owner[parameter]], []).append(name)
        return owned


class RecoverableRoles(Roles, Protocol):
    """Roles of a cluster that can be made whole again after a failed call.

    The order is: ``abort``, ``rebuild``, ``Install`` on the new roles, ``ReadProgress`` and
    ``Rollback`` of the weight servers, ``run`` of the rest of the job.
    """

    def prepare(self) -> None:
        """Begin to make ready what speeds up the next ``rebuild``. Idempotent."""

    def abort(self) -> Mapping[str, WaferStreamError]:
        """End the job on every role; return the roles that are lost, each with its error.

        The others keep weights and programs.
        """

    def rebuild(self, specs: Sequence[RoleSpec], lost: Collection[str]) -> frozenset[str]:
        """Replace lost and changed roles, and connect all of ``specs`` anew; return the new roles.

        Roles that are not lost and have the same spec as before keep their contents. After a
        failure of this method itself, new roles count as lost.

        Raises:
            ClusterJobInitError: A new role does not start.
        """
