"""Configuration of ``trainer.init.backend``: the device and the job's share of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from appliance.site import check_mounts, site_defaults
from waferstream.config.sections.section import Section, one_or_many
from waferstream.core.config import before
from waferstream.core.errors import ConfigError
from waferstream.core.user_code import USER_CODE, is_refused
from waferstream.machine.hardware.streams import MOST_SERVERS
from waferstream.management.model.notification import Notification

DeviceType = Literal["CSX", "CPU", "GPU"]


def _labels(value: Any) -> Any:
    """Convert ``[k=v, ...]`` to a mapping; the first of two equal labels wins."""
    if not isinstance(value, list):
        return {} if value is None else value
    labels: dict[str, str] = {}
    for entry in value:
        key, equals, text = str(entry).partition("=")
        if not (key and equals):
            raise ValueError(f"a label is written key=value, not {entry!r}")
        labels.setdefault(key, text)
    return labels


Labels = Annotated[
    dict[str, str],
    before(_labels, list[str] | dict[str, str] | None),
]
Paths = Annotated[tuple[Path, ...], one_or_many]


class ClusterConfig(Section):
    """Cluster resources of a job; defaults are the vendor's.

    Keys about containers, certificates and versions are accepted so that a file written for
    the real machine runs unchanged; an emulated cluster has nothing to mount or to match.
    """

    num_csx: PositiveInt = 1
    """CS systems for the job."""
    max_wgt_servers: int = Field(default=0, ge=0, le=MOST_SERVERS)
    """Weight servers; 0 takes the number of cluster.yaml."""
    max_act_per_csx: NonNegativeInt = 0
    """Most activation servers per system; 0 takes the number of cluster.yaml."""
    num_workers_per_csx: NonNegativeInt = 1
    """Input workers per system; cluster.yaml bounds their total. 0 means one process for all, and
    on the emulated clock as many as ``machine.input.workers_per_system``."""
    job_labels: Labels = Field(default_factory=dict)
    job_priority: Literal["p1", "p2", "p3"] = "p2"
    """Place in the queue of cluster.yaml (``runtime.queue``): p1 goes first."""
    job_time_sec: PositiveInt | None = None
    """End the run after this many seconds; queue time is not counted."""
    mount_dirs: Paths = ()
    """Folders of the job; roles read the file system of their host, so nothing is mounted."""
    python_paths: Paths = ()
    """Folders that user code is imported from, in this process and on input workers."""
    automount: bool = True
    mount_all: bool = True
    disable_mount_check: bool = True
    """False: ``mount_dirs`` and ``python_paths`` must exist."""
    disable_version_check: bool = False
    mgmt_address: str | None = None
    """``host:port`` of the cluster management."""
    mgmt_namespace: str | None = None
    credentials_path: Path | None = None
    cbcore_image: str | None = None
    workflow_id: str | None = None
    notifications: tuple[Notification, ...] = ()
    """Whom the management tells of failures, pauses and ends."""


def search_path(job: ClusterConfig) -> tuple[Path, ...]:
    """Return the folders that user code is imported from: those of the job, then of the site.

    Raises:
        ConfigError: The file of the site is wrong, a folder is missing and the job checks it, or
            the environment refuses code that files name.
    """
    site = site_defaults()
    if job.python_paths and is_refused():
        raise ConfigError(
            "the file must not name folders with code",
            code="user-code-refused",
            where="python_paths",
            value=", ".join(map(str, job.python_paths)),
            rule=f"the environment has {USER_CODE}=refuse",
            remedy="leave python_paths out, or trust the file",
        )
    paths = (*job.python_paths, *site.python_paths)
    if not job.disable_mount_check:
        check_mounts((*job.mount_dirs, *site.mount_dirs, *paths))
    return paths


class BackendConfig(Section):
    """Device, compile folder, and whether to compile, validate or run."""

    backend_type: DeviceType = "CSX"
    compile_dir: Path | None = None
    """Where compile artifacts are kept between runs."""
    compile_only: bool = False
    """Compile in full, execute nothing."""
    validate_only: bool = False
    """Stop once every op is matched to a kernel."""
    cluster_config: ClusterConfig = ClusterConfig()
    implicit_cast_cb16_to_fp32: bool | None = Field(
        default=None,
        alias="csx.debug.implicit_cast_cb16_to_fp32",
        description="As in GlobalFlags and the scoped flags, which win.",
    )

    @property
    def flags(self) -> dict[str, Any]:
        """Flags of ``cstorch.backends`` that the section sets, by dotted name."""
        name, value = "csx.debug.implicit_cast_cb16_to_fp32", self.implicit_cast_cb16_to_fp32
        return {} if value is None else {name: value}

    @model_validator(mode="after")
    def _stop_once(self) -> Self:
        if self.compile_only and self.validate_only:
            raise ValueError("compile_only and validate_only are mutually exclusive")
        return self
