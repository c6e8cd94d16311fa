"""Settings of a job under the names of the vendor's ``ClusterConfig``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from appliance.site import site_defaults
from cstorch.cluster import config as cluster
from waferstream.core.config import validate


@dataclass
class ClusterConfig:
    """Job settings of the real machine; ``cstorch.backend`` accepts them.

    Sizes, labels, the time limit and the address of the cluster with its credentials take effect,
    and ``python_paths`` is added to the search path of this process and the input workers, as are
    those of the site (``appliance.site``). The other fields have no counterpart here.
    """

    mgmt_address: str | None = None
    mgmt_namespace: str | None = None
    credentials_path: str | None = None
    num_csx: int = 1
    max_wgt_servers: int = 0
    max_act_per_csx: int = 0
    num_workers_per_csx: int = 1
    cbcore_image: str | None = None
    job_labels: list[str] = field(default_factory=list)
    job_priority: str = "p2"
    job_time_sec: int | None = None
    mount_dirs: list[str] = field(default_factory=list)
    python_paths: list[str] = field(default_factory=list)
    automount: bool = True
    mount_all: bool = True
    disable_mount_check: bool = True
    disable_version_check: bool = False
    workflow_id: str | None = None
    notifications: list[Any] = field(default_factory=list)

    def __hash__(self) -> int:
        """Return a hash by value, so that programs can cache what depends on the settings."""
        return hash(repr(self))

    def for_cluster(self) -> cluster.ClusterConfig:
        """Return the settings that the emulated cluster takes, and extend the search path.

        Raises:
            ConfigError: A value is out of range.
        """
        own = [*(self.python_paths or ()), *map(str, site_defaults().python_paths)]
        sys.path.extend(path for path in own if path not in sys.path)
        taken = {
            "num_csx": self.num_csx,
            "max_wgt_servers": self.max_wgt_servers,
            "max_act_per_csx": self.max_act_per_csx,
            "num_workers_per_csx": self.num_workers_per_csx,
            "job_labels": dict(label.partition("=")[::2] for label in self.job_labels or ()),
            "job_priority": self.job_priority or "p2",
            "job_time_sec": self.job_time_sec,
            "mgmt_address": self.mgmt_address,
            "credentials_path": self.credentials_path,
        }
        return validate(cluster.ClusterConfig, taken, "ClusterConfig")
