"""The cluster of a job: the sizes it asks for, and the machine."""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from appliance.remote.access import Access, read_access
from appliance.spec import AutoRestart, ClusterSpec, load_cluster
from cstorch.witness import Witness
from waferstream.core.config import Config
from waferstream.machine.hardware.choice import choose
from waferstream.machine.hardware.streams import MOST_SERVERS
from waferstream.machine.record import DEFAULT_LIMIT
from waferstream.management.model.job import PRIORITIES
from waferstream.management.model.workflow import Submission

log = logging.getLogger("waferstream")


class ClusterConfig(Config):
    """Sizes of the emulated cluster, and the cluster.yaml that describes its machine.

    Names and defaults are the vendor's (cerebras_appliance 2.10, ``cluster_config.py``).
    """

    num_csx: PositiveInt = 1
    """CS systems for the job."""

    cut_for_csx: PositiveInt = 1
    """Systems that each batch is cut for, where they are more than ``num_csx``: a run that goes on
    with fewer systems so has the micro-batches, and the weights, that it has on all."""

    max_wgt_servers: int = Field(default=0, ge=0, le=MOST_SERVERS)
    """Weight servers; 0 takes the number that cluster.yaml gives."""

    max_act_per_csx: NonNegativeInt = 0
    """Most activation servers per system; 0 takes the number that cluster.yaml gives."""

    num_workers_per_csx: NonNegativeInt = 1
    """Input workers per system; cluster.yaml bounds their total. 0 means one process for all, and
    on the emulated clock as many as ``machine.input.workers_per_system``."""

    job_labels: dict[str, str] = Field(default_factory=dict)

    job_priority: Literal["p1", "p2", "p3"] = "p2"
    """The place in the queue, p1 first, where cluster.yaml has a queue."""

    job_time_sec: PositiveInt | None = None
    """End the run with an error so many seconds after its cluster was started."""

    cluster: ClusterSpec = Field(default_factory=ClusterSpec)
    """The emulated machine and where it runs."""

    autorestart: AutoRestart | None = None
    """Whether and how often a run goes on after it has lost processes; None: never."""

    mgmt_address: str | None = None
    """``host:port`` of a cluster that runs elsewhere (``waferstream cluster serve``), whose machine
    counts, or of the management of an appliance. None runs the cluster from here."""

    credentials_path: Path | None = None
    """The file that the server of ``mgmt_address`` has written (.json), or the certificate of the
    management; by default those of this user."""

    record: bool = False
    """Record the activities of every role, for ``Backend.write_trace``."""

    record_limit: PositiveInt = DEFAULT_LIMIT
    """Most activities that are recorded, of each clock; what comes later is not in the trace."""

    @property
    def trace_limit(self) -> int:
        """Most activities of each clock that are recorded; 0 if none are."""
        return self.record_limit if self.record else 0

    @property
    def cut_csx(self) -> int:
        """The systems that each batch is cut for."""
        return max(self.num_csx, self.cut_for_csx)

    @property
    def num_activation_servers(self) -> int | Literal["auto"]:
        """Activation servers of all systems: those of cluster.yaml, or as many as are allowed."""
        wanted = self.cluster.runtime.activation_servers
        if wanted == "auto" or not self.max_act_per_csx:  # auto takes one for each system
            return wanted
        return min(wanted, self.max_act_per_csx * self.num_csx)

    @property
    def machine_name(self) -> str:
        """The name of the emulated machine, such as ``4 x CS-2``."""
        return f"{self.num_csx} x {self.cluster.machine.system.name}"

    @property
    def submission(self) -> Submission:
        """What the program asks for as a workflow."""
        return Submission(
            num_csx=self.num_csx,
            machine=self.machine_name,
            priority=PRIORITIES[self.job_priority],
            labels=self.job_labels,
        )

    def with_found_machine(self) -> ClusterConfig:
        """Return the settings with the machine of cluster.yaml, unless they name one.

        The file is looked for beside the program and in the working folder.

        Raises:
            ConfigError: The file is malformed.
        """
        if "cluster" in self.model_fields_set:
            return self
        program = getattr(sys.modules["__main__"], "__file__", None)
        folders = [Path(program).parent] if program else []
        for path in (folder / "cluster.yaml" for folder in [*folders, Path()]):
            if path.is_file():
                log.info("The machine is that of %s", path)
                return self.model_copy(update={"cluster": load_cluster(path)})
        return self

    @property
    def access(self) -> Access | None:
        """The server whose cluster the program uses, if it is known already.

        Raises:
            ConfigError: The file of the right to use it is wrong.
        """
        if self.mgmt_address is None:
            return None
        return read_access(self.mgmt_address, self.credentials_path)

    def with_remote_machine(self) -> ClusterConfig:
        """Return the settings with the machine of the server, if the cluster is there.

        Raises:
            ClusterJobInitError: The server does not answer.
        """
        access = self.access
        if access is None:
            return self
        from appliance.remote.connection import described  # noqa: PLC0415  (gRPC: slow)

        return self.model_copy(update={"cluster": described(access).cluster})

    def with_system(self, name: str) -> ClusterConfig:
        """Return the settings with a kind of system, ``CS-2`` or ``CS-3``.

        The system of the cluster keeps its numbers if it is of that kind; else the published one
        wins, which is told where the cluster has changed numbers.
        """
        choice = choose(self.cluster.machine, name, "The program's target_device")
        if choice.note:
            log.warning(choice.note)
        cluster = self.cluster.model_copy(update={"machine": choice.machine})
        return self.model_copy(update={"cluster": cluster})

    def in_this_process(self) -> ClusterConfig:
        """Return the settings with all roles of the cluster in this process."""
        runtime = self.cluster.runtime.model_copy(update={"kind": "local"})
        cluster = self.cluster.model_copy(update={"runtime": runtime})
        changes = {"cluster": cluster, "autorestart": None, "mgmt_address": None}
        return self.model_copy(update=changes)


@dataclass(frozen=True)
class Launch:
    """What runs a program (``waferstream exec``, ``%%waferstream``) says about its cluster."""

    cluster: ClusterSpec | None = None
    """The machine; None for the program's own."""

    is_cluster_typed: bool = False
    """Whether the machine was named on the command line, and not only found."""

    num_csx: int | None = None
    """Systems; None for the program's own number."""

    trace_limit: int = 0
    """Most activities of each clock to record for a trace; 0 for the program's own setting."""

    mgmt_address: str | None = None
    """``host:port`` of a cluster that runs elsewhere; None for the program's own."""

    credentials_path: Path | None = None
    """The file with the right to use that cluster."""

    witness: Witness | None = None
    """Who watches its first steps (``waferstream check``); None to run all of them."""

    is_cell: bool = False
    """Whether the program is a cell of a notebook, which shows progress and leaves no files."""

    def applied_to(self, config: ClusterConfig) -> ClusterConfig:
        """Return the program's settings, changed by what was typed on the command line.

        Raises:
            ConfigError: ``num_csx`` is out of range.
        """
        changes: dict[str, Any] = {}
        if self.trace_limit:
            changes |= {"record": True, "record_limit": self.trace_limit}
        own_machine = "cluster" in config.model_fields_set
        if self.cluster is not None and (self.is_cluster_typed or not own_machine):
            changes["cluster"] = self.cluster
        if self.num_csx is not None:
            changes["num_csx"] = self.num_csx
        if self.mgmt_address is not None:
            changes["mgmt_address"] = self.mgmt_address
            changes["credentials_path"] = self.credentials_path
        changed = config.model_copy(update=changes)
        return changed if self.witness is None else changed.in_this_process()


launch: ContextVar[Launch | None] = ContextVar("launch", default=None)
"""What runs the program of this process; None if Python runs it."""


def current_witness() -> Witness | None:
    """Return who watches the program of this process, if anybody does."""
    command = launch.get()
    return None if command is None else command.witness


def computing_around(step: int) -> AbstractContextManager[None]:
    """Return the context in which a step on the CPU, counted from 1, computes."""
    witness = current_witness()
    return nullcontext() if witness is None else witness.around(step)
