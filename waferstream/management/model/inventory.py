"""What an appliance has: systems, MemoryX groups, hosts; and the parts that sessions set aside."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from waferstream.core.config import Config

MOST_SYSTEMS = 2048
"""Systems of the largest cluster that the vendor offers (CS-3, announcement of 2024)."""

SystemKind = Literal["CS-2", "CS-3"]

NodeState = Literal["ok", "drained", "tainted"]
"""``drained``: what runs there ends, nothing new starts. ``tainted``: a fault was found."""

DEFAULT_SESSION = "default"
"""The session of all that no session sets aside."""


class System(Config):
    """A CS system."""

    name: str
    kind: SystemKind = "CS-2"
    state: NodeState = "ok"


class MemoryXGroup(Config):
    """A MemoryX node group, of which each training takes one."""

    name: str
    memory: Literal["regular", "large", "xlarge"] = "regular"
    state: NodeState = "ok"


class Inventory(Config):
    """All that an appliance has."""

    systems: tuple[System, ...] = Field(max_length=MOST_SYSTEMS)
    groups: tuple[MemoryXGroup, ...] = Field(max_length=MOST_SYSTEMS)
    compile_slots: int = Field(default=1, ge=1)
    """Compiles beside one another, which the memory of the host of the management bounds."""

    input_workers: int = Field(default=1, ge=1)
    """Input-worker processes of each system."""

    @property
    def restored(self) -> Inventory:
        """The inventory when all its nodes are in use again."""
        ok = {"state": "ok"}
        return self.model_copy(
            update={
                "systems": tuple(each.model_copy(update=ok) for each in self.systems),
                "groups": tuple(each.model_copy(update=ok) for each in self.groups),
            }
        )


class QueueSpec(Config):
    """What the runs of a computer share if they queue (``runtime.queue`` of cluster.yaml)."""

    systems: int = Field(ge=1, le=MOST_SYSTEMS)
    """CS systems for all runs together."""

    memoryx_groups: int = Field(default=1, ge=1, le=MOST_SYSTEMS)
    """MemoryX groups, of which each run takes one."""

    def inventory(self, kind: SystemKind = "CS-2") -> Inventory:
        """Return so many systems of a kind, and so many groups."""
        return Inventory(
            systems=tuple(
                System(name=f"system-{index}", kind=kind) for index in range(self.systems)
            ),
            groups=tuple(
                MemoryXGroup(name=f"group-{index}") for index in range(self.memoryx_groups)
            ),
        )


class Session(Config):
    """A part of the inventory that an administrator sets aside for some users."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    systems: int = Field(ge=0, le=MOST_SYSTEMS)
    groups: int = Field(default=1, ge=0, le=MOST_SYSTEMS)
    users: tuple[str, ...] = ()
    """Users and groups of users who may use it; nobody else may."""
