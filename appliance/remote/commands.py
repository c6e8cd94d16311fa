"""What a program asks of a server before its cluster runs, and how the server answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import PositiveFloat

from appliance.placement.cores import cores_of_host
from appliance.placement.host_memory import free_bytes
from appliance.plan import ClusterPlan
from appliance.spec import ClusterSpec
from waferstream.core.config import Config
from waferstream.core.roles.role import Command

_SHARE_OF_ACTIVATIONS = 4
"""Activations may take one part in so many of what is free, since the weights are not known yet."""


@dataclass(frozen=True)
class Start(Command[None]):
    """Start the cluster of a plan, on the machine of the server: the plan's own does not count."""

    plan: ClusterPlan


class Description(Config):
    """A server as it describes itself: a program compiles for its machine."""

    cluster: ClusterSpec
    """The emulated machine and where it runs, with numbers of that host instead of ``auto``."""

    lease_s: PositiveFloat
    """A program that is silent for longer loses its cluster."""

    @classmethod
    def of(cls, cluster: ClusterSpec, lease_s: float) -> Self:
        """Describe a server on this host. What only concerns this host stays here."""
        runtime = cluster.runtime
        activations = runtime.activation_memory
        if activations == "auto":
            activations = free_bytes() // _SHARE_OF_ACTIVATIONS
        changes = {
            "cores": cores_of_host(runtime.cores),
            "activation_memory": activations,
            "queue": None,
            "tls": None,
        }
        shown = runtime.model_copy(update=changes)
        return cls(cluster=cluster.model_copy(update={"runtime": shown}), lease_s=lease_s)
