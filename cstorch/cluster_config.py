"""What a job asks of the cluster; names and defaults are the vendor's."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt, PositiveInt

from appliance.spec import ClusterSpec
from timing.hardware.streams import MOST_SERVERS
from wsc.core.config import Config


class ClusterConfig(Config):
    """Sizes of the emulated cluster, and the cluster.yaml that describes its machine."""

    num_csx: PositiveInt = 1
    """CS systems for the job."""

    max_wgt_servers: int = Field(default=0, ge=0, le=MOST_SERVERS)
    """Weight servers; 0 takes the number that cluster.yaml gives."""

    num_workers_per_csx: NonNegativeInt = 1
    """Input workers per system; cluster.yaml bounds their total. 0 means one process for all, and
    on the emulated clock as many as ``machine.input.workers_per_system``."""

    job_labels: dict[str, str] = Field(default_factory=dict)

    job_time_sec: PositiveInt | None = None
    """End the run with an error so many seconds after its cluster was started."""

    cluster: ClusterSpec = Field(default_factory=ClusterSpec)
    """The emulated machine and where it runs."""

    record: bool = False
    """Remember what every role did when, for ``Backend.write_trace``."""
