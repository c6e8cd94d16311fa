"""Configuration of cluster.yaml: the emulated machine, and where the emulation runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from appliance.faults.plan import FaultPlan
from appliance.user_code import importing_from
from csnode.devices import DeviceName
from csnode.engine.spec import TORCH, EngineName, EngineSpec
from memoryx.memory.flash_spec import FlashSpec
from swarmx.links.tls import TlsSpec
from waferstream.core.config import Config, before, load_yaml, validate
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.hardware.activations import MOST_SERVERS
from waferstream.machine.hardware.choice import contradiction
from waferstream.machine.hardware.named import PRESETS
from waferstream.machine.hardware.wafer import SYSTEMS
from waferstream.management.model.inventory import QueueSpec

log = logging.getLogger("waferstream")

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
"""How systems take hosts."""

ServerStrategy = Literal["PACK", "SPREAD"]
"""How weight servers take hosts."""


class AutoRestart(Config):
    """Section ``trainer.init.autorestart`` (Model Zoo 2.10, ``autorestart.py``)."""

    max_num_restarts: PositiveInt
    """Recoveries of a running cluster without a new checkpoint; one more failure ends the run."""

    min_num_csx: PositiveInt = 1
    """The least number of systems that a run goes on with."""


class RoleLogSpec(Config):
    """Logs of the roles, by the vendor's short names of tasks (``--wsc_log_level``)."""

    folder: Path | None = None
    """Folder of one file for each role; null logs nothing."""

    levels: dict[str, int | str] = Field(default_factory=dict)
    """Level by task: ``crd`` the coordinator, ``wgt`` weight servers, ``br`` switches, ``act`` CS
    nodes and activation servers, ``wrk`` input workers; the others have no role here. A task
    without level logs nothing.
    """


class RecoverySpec(Config):
    """How a run with ``init.autorestart`` gets back what a lost process held."""

    weight_servers: Literal["replay", "replica"] = "replay"
    """``replay``: the steps since the newest checkpoint are computed again on another cluster.
    ``replica``: every weight server has a replica in step, from which a new one is filled; this
    takes the memory of the weights twice, and the time of the updates."""


class VerifySpec(Config):
    """Gradients that a second system computes, too, to find one that computes wrong bits."""

    fraction: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of what the systems compute in a round that is compared bit for bit; the host
    computes so much more. Emulated time does not contain it."""


def _named(engine: object) -> object:
    """Return the mapping that the name of an engine stands for."""
    return {"default": engine} if isinstance(engine, str) else engine


class RuntimeSpec(Config):
    """How the emulated machine is mapped to this computer or to a Ray cluster."""

    kind: Literal["ray", "local"] = "ray"
    """``ray``: every role is an actor. ``local``: all roles in this process, deterministic."""

    address: str = "local"
    """Ray address: ``local`` starts a private instance, ``auto`` or ``host:port`` joins one."""

    cores: PositiveInt | Literal["auto"] = "auto"
    """Cores of this host that may compute at a time; ``auto`` takes all."""

    activation_memory: PositiveInt | Literal["auto"] = "auto"
    """Bytes of a host that activations may take. They decide how many micro-batches a node takes in
    a round (appliance.elaboration.round_size), not the weights. ``auto`` takes half of what is
    free; with ``device: cuda`` it takes half of the memory of the GPUs of the host of the program.
    """

    activation_servers: Annotated[NonNegativeInt, Field(le=MOST_SERVERS)] | Literal["auto"] = "auto"
    """Roles ``act-0`` ... that hold activations for which a system has no room: the emulated one in
    its SRAM, or its host in ``activation_memory``. ``auto`` is one for each system if the first
    program needs them for its SRAM, else none. The weights do not depend on them."""

    flash: FlashSpec | None = None
    """Files in which weight servers keep masters and optimizer state, of which only so many bytes
    are in DRAM at a time. Without, all of it is in DRAM."""

    engine: Annotated[EngineSpec, before(_named, EngineName | EngineSpec)] = TORCH
    """What computes the kernels of CS nodes: ``torch``, ``wafer`` or ``wafer-cycles``, or a mapping
    that says it by layer and by kind of kernel (csnode.engine)."""

    device: DeviceName = "cpu"
    """Where torch computes the kernels of CS nodes. ``cuda``: on the GPUs of the node's host, taken
    in turn, with at most eight systems each; weights and gradients are copied while kernels run.
    The trained weights have other bits than on ``cpu``, the same for every shape of a cluster."""

    placement: Strategy = "PACK"
    """How systems take hosts: ``PACK`` fills one after the other, that of the program first;
    ``SPREAD`` gives all equally many; ``STRICT_PACK`` takes one host for all, ``STRICT_SPREAD`` one
    host for each. A host takes as many systems as it offers CPUs to Ray."""

    server_placement: ServerStrategy = "PACK"
    """``PACK``: weight and activation servers run on the host of the program. ``SPREAD``: on all
    hosts of systems in turn, and checkpoints travel to the host of the program through Ray."""

    mixed_processors: bool = False
    """Whether hosts whose processors compute other bits may share a run. The weights then depend on
    which host computes what; without, such hosts are refused before anything starts."""

    link: Literal["auto", "shared_memory", "tcp", "grpc"] = "auto"
    """What carries messages between actors. ``auto`` is shared memory within a host, and ``tcp``
    between hosts; ``tcp`` and ``grpc`` are also used within a host. Both are under TLS."""

    tls: TlsSpec | None = None
    """Certificates of the hosts, for links between hosts. Without, every role makes one of its own,
    and the directory that Ray carries says which belongs to whom."""

    input_workers: PositiveInt = 1
    """Most input-worker processes, even if ``num_workers_per_csx`` requests more."""

    fast_start: bool = True
    """Whether a private Ray starts with changes of its private modules
    (appliance.ray.connection.patches). Without, its start takes some seconds longer, it has
    ports on other addresses than loopback, and a signal to the program's group ends it, too.
    With them, tasks of the program's own that have a ``runtime_env`` are refused."""

    start_timeout_s: PositiveFloat = 90.0
    """Fail if the actors have not started after this time."""

    stall_timeout_s: PositiveFloat = 600.0
    """Fail if a role waits longer than this for a message, or is busy with one for longer."""

    heartbeat_timeout_s: PositiveFloat = 5.0
    """Fail if a process of the cluster is stopped (SIGSTOP), or its host silent, for longer."""

    recovery: RecoverySpec = Field(default_factory=RecoverySpec)
    """What is kept so that a run can go on after it has lost processes."""

    straggler_factor: float | None = Field(default=None, gt=1.0)
    """Name systems that compute more than so many times as long as the median one, in real time,
    three steps or more in a row. null names none."""

    shares: Literal["equal", "measured"] = "equal"
    """Micro-batches of the systems: ``equal``, or more for those that were faster in the last job
    (from one checkpoint or activation step to the next), where that shortens a step by a tenth.
    Weights and emulated time do not depend on it."""

    verify: VerifySpec = Field(default_factory=VerifySpec)
    """What is computed twice and compared; nothing by default."""

    metrics: bool = False
    """Whether every role reports bytes, messages, steps and waiting to Ray's metrics every five
    seconds, for the dashboard of a joined cluster (docs/deployment.md)."""

    queue: QueueSpec | None = None
    """What the runs of a user on this computer share: they wait for one another by priority. By
    default they run side by side."""

    faults: FaultPlan = Field(default_factory=FaultPlan)
    """What fails on demand, to see what a run does then; nothing by default."""

    log: RoleLogSpec = Field(default_factory=RoleLogSpec)
    """Logs of the roles; a run of a params file sets them from ``logging.wsc_log_level``."""

    @property
    def carrier(self) -> Literal["auto", "shared_memory", "tcp", "grpc"]:
        """The link that is opened: a private Ray has one host, so nothing listens on a network."""
        if self.link == "auto" and self.address == "local":
            return "shared_memory"
        return self.link

    @model_validator(mode="after")
    def _torch_computes_on_gpus(self) -> RuntimeSpec:
        is_whole = self.engine.is_torch and self.engine.sparse_products == "none"
        if self.device == "cuda" and not is_whole:
            raise ConfigError(
                "runtime.device: cuda must go with whole products of torch",
                code="gpu-without-torch",
                where="runtime.device, runtime.engine",
                value=f"device: cuda, engine: {self.engine.default}, "
                f"sparse_products: {self.engine.sparse_products}",
                rule="the processor computes the array of PEs, and products of non-zeros",
                remedy="set runtime.device: cpu, or remove runtime.engine",
            )
        return self

    @model_validator(mode="after")
    def _tls_has_a_network(self) -> RuntimeSpec:
        if self.tls is not None and (self.kind == "local" or self.carrier == "shared_memory"):
            raise ConfigError(
                "runtime.tls must go with a link between hosts",
                code="tls-without-network",
                value=f"kind: {self.kind}, link: {self.link}, address: {self.address}",
                remedy="join a Ray cluster with runtime.link auto, or remove runtime.tls",
            )
        return self


class ClusterSpec(Config):
    """All of cluster.yaml. Wafers with defects are reduced to the part that works.

    A program may give the path of such a file, or the name of a machine or of a kind of system, in
    its place.
    """

    machine: MachineSpec = Field(default_factory=MachineSpec)
    runtime: RuntimeSpec = Field(default_factory=RuntimeSpec)

    @model_validator(mode="before")
    @classmethod
    def _of_file_or_name(cls, given: Any) -> Any:
        return _sections(given) if isinstance(given, str | Path) else given

    @field_validator("machine", "runtime", mode="before")
    @classmethod
    def _as_published(cls, section: object) -> object:
        return {} if section is None else section  # a key whose lines are all commented out

    @field_validator("machine", mode="after")
    @classmethod
    def _only_what_works(cls, machine: MachineSpec) -> MachineSpec:
        if machine.system.defects.is_none:
            return machine
        from csnode.fabric.region import working_wafer  # noqa: PLC0415  (all of the fabric)

        return machine.model_copy(update={"system": working_wafer(machine.system)})


Cluster = ClusterSpec | Mapping[str, Any] | Path | str
"""A cluster as a program states it."""


def _sections(given: str | Path) -> Any:
    """Return the sections of a file, or those that a name stands for.

    Raises:
        ConfigError: It is neither.
    """
    if str(given) in SYSTEMS:
        return {"machine": {"system": str(given)}}
    if str(given) in PRESETS:
        return {"machine": {"name": str(given)}}
    if Path(given).suffix in (".yaml", ".yml") or Path(given).exists():
        return load_yaml(Path(given))
    known = (*SYSTEMS, *PRESETS)
    raise ConfigError(
        "a cluster must be a file or a machine that is known",
        code="unknown-machine",
        where="cluster",
        value=given,
        rule=f"the path of a cluster.yaml, or one of {', '.join(known)}",
        remedy=did_you_mean(str(given), list(known)),
    )


def load_cluster(path: Path) -> ClusterSpec:
    """Read cluster.yaml, and tell which numbers of a named machine it changes.

    Raises:
        ConfigError: The file is malformed; the error names key, value and rule.
    """
    with importing_from((path.parent, Path())):  # a machine of the user's own
        spec = validate(ClusterSpec, load_yaml(path), str(path))
    if note := contradiction(spec.machine):
        log.warning(note)
    return spec
