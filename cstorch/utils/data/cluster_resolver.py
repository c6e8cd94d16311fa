"""The tasks of a cluster that read data: there is one, which reads whole global batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TaskSpec:
    """One input worker: its rank among all, and among those of its system."""

    rank: int = 0
    local_rank: int = 0
    wse_id: int = 0
    node_name: str = "localhost"


@dataclass(frozen=True)
class ClusterSpec:
    """All input workers, and the rank of this one."""

    tasks: Sequence[TaskSpec] = (TaskSpec(),)
    rank: int = 0
    num_csx: int = 1
    num_workers_per_csx: int = 1

    def num_tasks(self) -> int:
        """Return the number of workers."""
        return len(self.tasks)

    def task(self, rank: int | None = None) -> TaskSpec:
        """Return a worker, by default this one."""
        return self.tasks[self.rank if rank is None else rank]


@dataclass(frozen=True)
class ServiceResolver:
    """What a loader may ask about the cluster."""

    cluster_spec: ClusterSpec = field(default_factory=ClusterSpec)
