"""Cluster settings and streaming helpers under the names of the vendor's ``distributed`` module.

Every input worker here runs the whole loader, and the cluster takes each system's rows from its
global batches. A loader that takes a share for itself (``rank`` of ``num_streamers``) must
therefore take all, which the values of this module make it do.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from cstorch.cluster.job_settings import ClusterConfig as ClusterConfig  # noqa: PLC0414  (exported)
from cstorch.utils.data.cluster_resolver import ServiceResolver
from cstorch.utils.data.restartable import get_worker_state as get_worker_state  # noqa: PLC0414  (exported)
from waferstream.core.errors import ConfigError


def is_streamer() -> bool:
    """Return whether the loader must take a share of the data for itself: it never must."""
    return False


def num_streamers() -> int:
    """Return the number of shares of the data."""
    return 1


def get_streaming_rank() -> int:
    """Return the share of the data that the loader takes, from 0."""
    return 0


def get_streaming_batch_size(
    global_batch_size: int,
    global_rank: int | None = None,  # noqa: ARG001
) -> int:
    """Return the rows that the loader must yield: those of the global batch.

    Raises:
        ConfigError: The batch is no whole number of samples.
    """
    if not isinstance(global_batch_size, int) or global_batch_size < 1:
        raise ConfigError(
            "the global batch size must be a whole number of at least 1",
            code="batch-size-not-whole",
            where="cstorch.distributed.get_streaming_batch_size",
            value=f"{global_batch_size!r}",
        )
    return global_batch_size


def is_master_ordinal(local: bool = False) -> bool:  # noqa: ARG001
    """Return whether this process logs and writes files: the user's process does."""
    return True


def get_ordinal() -> int:
    """Return the number of this process among those that run the user's program."""
    return 0


get_rank = get_ordinal


def get_world_size() -> int:
    """Return the number of processes that run the user's program."""
    return 1


num_tasks = get_world_size


def service_resolver() -> ServiceResolver:
    """Return the view of a loader on the cluster: it is the only one that reads data."""
    return ServiceResolver()


WORKER_CACHE_ROOT = str(Path(tempfile.gettempdir()) / f"waferstream_worker_cache-{os.getuid()}")
"""Folder to which a loader may copy data that it reads often."""

_CACHE_SHARE = 0.8  # of the disk that the cache may fill (cerebras_pytorch 2.10)


def hit_worker_cache_limit(src_dir: str, dest_dir: str) -> tuple[bool, int, int]:
    """Return whether a folder does not fit into the cache, its bytes, and the bytes left.

    Args:
        src_dir: The folder to copy.
        dest_dir: Its copy, which may exist and is replaced.
    """
    disk = shutil.disk_usage(Path(dest_dir).parent if Path(dest_dir).parent.is_dir() else "/")
    left = int(disk.total * _CACHE_SHARE) - disk.used + _bytes_in(dest_dir)
    needed = _bytes_in(src_dir)
    return needed > left, needed, left


def _bytes_in(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
