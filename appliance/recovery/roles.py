"""What roles can do beyond ``Roles`` so that a job can go on after some of them are lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from appliance.coordinator.roles import Roles
from waferstream.core.errors import WaferStreamError
from waferstream.core.roles.role import RoleSpec


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
