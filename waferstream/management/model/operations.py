"""Operations of the management, as data: one class for each, generic in its result.

They travel as JSON through both doors, and ``Manager.do`` has a ``case`` for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, TypeAdapter

from waferstream.core.config import Config
from waferstream.management.model.event import Event, Fact
from waferstream.management.model.inventory import Inventory, NodeState, Session
from waferstream.management.model.job import WORKFLOW_NAME, new_workflow_name
from waferstream.management.model.telemetry import Numbers, Telemetry
from waferstream.management.model.workflow import Submission, Workflow

Result = TypeVar("Result")

Role = Literal["user", "administrator", "run"]
"""``run`` is a launched process, which speaks for its own workflow alone."""


class Caller(Config):
    """Who asks."""

    user: str
    role: Role = "user"
    groups: tuple[str, ...] = ()
    workflow: str = ""
    """The workflow that a ``run`` speaks for."""


class Operation(Config, Generic[Result]):
    """Something that the management does for those who may ask for it."""

    roles: ClassVar[frozenset[Role]] = frozenset({"user", "administrator"})
    """Who may ask."""

    changes: ClassVar[bool] = True
    """Whether it changes anything."""

    result: ClassVar[TypeAdapter[Any]] = TypeAdapter(None)
    """What the answer is, for JSON."""


class OfWorkflow(Operation[Result], Generic[Result]):
    """An operation on a workflow, which its user, their groups and administrators may ask for."""

    name: str
    """The workflow, or one of its jobs."""


class OfAdministrator(Operation[Result], Generic[Result]):
    """An operation on the appliance, which only administrators may ask for."""

    roles = frozenset({"administrator"})


class Version(Config):
    """What a client must fit."""

    version: str
    """The release of the management, such as ``0.9.0``."""

    pages: str = ""
    """Where its pages are, such as ``http://127.0.0.1:9080``; empty where it has none."""


class ReadVersion(Operation[Version]):
    """Return the release of the management."""

    changes = False
    roles = frozenset({"user", "administrator", "run"})
    result = TypeAdapter(Version)


class Submit(Operation[Workflow]):
    """Take a workflow in; the second time that a user asks for a name changes nothing."""

    name: str = Field(pattern=WORKFLOW_NAME, default_factory=new_workflow_name)
    submission: Submission
    result = TypeAdapter(Workflow)


class ListWorkflows(Operation[list[Workflow]]):
    """Return workflows by priority and age: unfinished ones, or all of the past week."""

    changes = False
    all_states: bool = False
    labels: Mapping[str, str] = Field(default_factory=dict)
    user: str | None = None
    limit: int = Field(default=10_000, ge=1, le=100_000)
    result = TypeAdapter(list[Workflow])


class ReadWorkflow(Operation[Workflow]):
    """Return a workflow by its name or that of one of its jobs."""

    roles = frozenset({"user", "administrator", "run"})
    changes = False
    name: str
    result = TypeAdapter(Workflow)


class Explanation(Config):
    """Why a workflow waits, and when it is expected to start."""

    workflow: str
    reason: str
    place: int
    """In the queue, from 1; 0 where it does not wait."""

    start_s: float | None = None
    """Expected start, in seconds since 1970; None where nothing can be said."""

    earliest_s: float | None = None
    latest_s: float | None = None
    run_s: float | None = None
    """How long it then runs on the systems that it asks for, as the schedule takes it."""

    sooner: tuple[str, ...] = ()
    """What would start it sooner."""


class Explain(Operation[Explanation]):
    """Return why a workflow waits, when it will start, and what would start it sooner."""

    changes = False
    name: str
    result = TypeAdapter(Explanation)


class ListExplanations(Operation[list[Explanation]]):
    """Return the same of all workflows that wait, in their order."""

    changes = False
    result = TypeAdapter(list[Explanation])


class Cancel(OfWorkflow[Workflow]):
    """End a workflow; its run saves a checkpoint first."""

    result = TypeAdapter(Workflow)


class Label(OfWorkflow[Workflow]):
    """Set labels of a workflow, and remove those whose value is null."""

    labels: dict[str, str | None]
    result = TypeAdapter(Workflow)


class SetPriority(OfWorkflow[Workflow]):
    """Change the priority of a workflow and of its later jobs."""

    priority: int = Field(ge=0, le=399)
    result = TypeAdapter(Workflow)


class Detach(OfWorkflow[Workflow]):
    """Let a workflow go on without its client."""

    result = TypeAdapter(Workflow)


class Beat(OfWorkflow[None]):
    """Say that the client of a workflow, or its run, is there; without beats it ends."""

    roles = frozenset({"user", "administrator", "run"})


class ReadEvents(Operation[list[Event]]):
    """Return the events after a number, in order: of one workflow, or of all."""

    changes = False
    name: str = ""
    after: int = Field(default=0, ge=0, lt=2**63)
    limit: int = Field(default=1000, ge=1, le=10_000)
    result = TypeAdapter(list[Event])


class ClusterView(Config):
    """The inventory, its sessions, and who holds what."""

    inventory: Inventory
    sessions: tuple[Session, ...]
    holders: Mapping[str, str]
    """Workflow by system and by MemoryX group."""


class ReadCluster(Operation[ClusterView]):
    """Return systems, groups and sessions, and the workflows that hold them."""

    changes = False
    result = TypeAdapter(ClusterView)


PRINTED = ".printed.log"
"""The path of what a workflow has printed, among its files; ``ListFiles`` leaves it out."""


class FileEntry(Config):
    """A file of a run."""

    path: str
    """Below the folder of the run."""

    size_bytes: int
    changed_s: float


class ListFiles(OfWorkflow[list[FileEntry]]):
    """Return the files that a run has written, checkpoints among them."""

    changes = False
    result = TypeAdapter(list[FileEntry])


class NoteFact(OfWorkflow[Workflow]):
    """Note what has happened in a run: its jobs, phases, predictions and progress."""

    roles = frozenset({"run"})
    fact: Fact
    result = TypeAdapter(Workflow)


class NoteTelemetry(OfWorkflow[None]):
    """Keep the newest numbers of a run until it ends."""

    roles = frozenset({"run"})
    changes = False
    telemetry: Telemetry


class ReadNumbers(Operation[Numbers]):
    """Return what management and running workflows do, in numbers."""

    changes = False
    result = TypeAdapter(Numbers)


class PutSession(OfAdministrator[None]):
    """Create a session, or give it another size while its jobs run."""

    session: Session


class DeleteSession(OfAdministrator[None]):
    """Delete a session; its running jobs end as they are."""

    name: str


class SetNode(OfAdministrator[None]):
    """Drain, taint or restore a system or MemoryX group."""

    name: str
    state: NodeState


class NewToken(Config):
    """The token of a user, which is shown once: the management keeps its digest."""

    user: str
    token: str


class AddUser(OfAdministrator[NewToken]):
    """Give a user a new token; a known one gets another role and other groups, too."""

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$")
    role: Literal["user", "administrator"] = "user"
    groups: tuple[str, ...] = ()
    result = TypeAdapter(NewToken)


class RevokeUser(OfAdministrator[int]):
    """Revoke all tokens of a user; return how many."""

    name: str
    result = TypeAdapter(int)


OPERATIONS: Mapping[str, type[Operation[Any]]] = {
    each.__name__: each
    for each in (
        ReadVersion, Submit, ListWorkflows, ReadWorkflow, Explain, ListExplanations, Cancel,
        Label, SetPriority, Detach, Beat, ReadEvents, ReadCluster, ListFiles, NoteFact,
        NoteTelemetry, ReadNumbers, PutSession, DeleteSession, SetNode, AddUser, RevokeUser,
    )
}  # fmt: skip
"""Every operation by its name."""
