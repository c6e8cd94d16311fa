"""Build the backend that a configuration describes, and set its flags while they apply."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cstorch
from appliance.spec import ClusterSpec
from cstorch.backend import Backend
from waferstream.config.params import InitConfig, Params, Scope
from waferstream.config.sections.callbacks import CheckLoss
from waferstream.config.sections.flags import (
    Flags,
    GlobalFlags,
    ScopedTrainFlags,
    ScopedValidateFlags,
)
from waferstream.config.sections.precision import PrecisionConfig
from waferstream.core.program.program import ProgramKind
from waferstream.machine.record import DEFAULT_LIMIT
from waferstream.management.client.launched import launched_client
from waferstream.training.trace_request import TraceRequest

log = logging.getLogger("waferstream")

COMPILED = "cached_compile"
"""The folder of the compile cache in the folder of the model."""


def make_backend(
    params: Params,
    cluster: ClusterSpec,
    trace: TraceRequest | None = None,
    compile_dir: Path | None = None,
    cut_for_csx: int = 1,
) -> Backend:
    """Build the backend of a configuration.

    Args:
        params: The configuration.
        cluster: The machine.
        trace: What activities are recorded for, if they are.
        compile_dir: The compile cache, unless the configuration names one.
        cut_for_csx: The systems that batches are cut for, where they are more than the run has.

    Raises:
        ConfigError: The machine has fewer systems.
    """
    init = params.trainer.init
    cluster.machine.check_systems(init.backend.cluster_config.num_csx)
    _set_precision(init.precision)
    backend = cstorch.backend(
        init.backend.backend_type,
        cluster_config=_cluster_config(init, cluster, trace, cut_for_csx),
        compile_dir=init.backend.compile_dir or compile_dir or init.model_dir / COMPILED,
        compile_only=init.backend.compile_only,
        validate_only=init.backend.validate_only,
        seed=init.seed,
        check_loss=init.callback(CheckLoss) is not None,
    )
    settings = backend.session.settings
    settings.logs_progress = False  # observers report it
    settings.bars = (ProgramKind.EVAL,)
    backend.session.execution.returns_values = False  # checkpoints hold them
    return backend


def _set_precision(precision: PrecisionConfig) -> None:
    """Set the types and the rounding of all programs that are compiled from now on."""
    cstorch.amp.enable_mixed_precision(precision.enabled)
    cstorch.amp.set_half_dtype(precision.fp16_type)
    csx = cstorch.backends.csx
    csx.precision.optimization_level = precision.precision_opt_level
    csx.precision.stochastic_rounding = precision.stochastic_rounding


def _cluster_config(
    init: InitConfig, cluster: ClusterSpec, trace: TraceRequest | None, cut_for_csx: int
) -> cstorch.ClusterConfig:
    """Return the job's share of the cluster."""
    job = init.backend.cluster_config
    if job.notifications and launched_client() is None:
        log.warning("Nobody is notified of this run: only a management (mgmt_address) does so.")
    return cstorch.ClusterConfig(
        num_csx=job.num_csx,
        cut_for_csx=cut_for_csx,
        max_wgt_servers=job.max_wgt_servers,
        max_act_per_csx=job.max_act_per_csx,
        num_workers_per_csx=job.num_workers_per_csx,
        job_labels=job.job_labels,
        job_priority=job.job_priority,
        job_time_sec=job.job_time_sec,
        cluster=cluster,
        autorestart=init.restarts(cluster.runtime.kind),
        record=trace is not None,
        record_limit=DEFAULT_LIMIT if trace is None else trace.limit,
    )


@contextmanager
def global_flags(init: InitConfig) -> Iterator[None]:
    """Apply GlobalFlags and those of the backend inside the block; they win in this order.

    A flag has its former value afterwards.
    """
    with _applied(init.backend.flags | _set_by(init.callback(GlobalFlags))):
        yield


@contextmanager
def scoped_flags(init: InitConfig, scope: Scope) -> Iterator[None]:
    """Apply the flags of training or of evaluation inside the block, over the global ones."""
    kind = ScopedTrainFlags if scope == "train" else ScopedValidateFlags
    size = {"csx.performance.micro_batch_size": init.micro_batch_policy(scope).requested}
    with _applied(_set_by(init.callback(kind)) | size):
        yield


def _set_by(flags: Flags | None) -> dict[str, Any]:
    """Return the flags that a callback sets, by dotted name."""
    return flags.values() if flags else {}


@contextmanager
def _applied(values: Mapping[str, Any]) -> Iterator[None]:
    before = {path: _read(path) for path in values}
    try:
        for path, value in values.items():
            _write(path, value)
        yield
    finally:
        for path, value in before.items():
            _write(path, value)


def _holder(path: str) -> tuple[Any, str]:
    """Return the group that holds a flag, and the flag's name in it."""
    *groups, name = path.split(".")
    holder: Any = cstorch.backends
    for group in groups:
        holder = getattr(holder, group)
    return holder, name


def _read(path: str) -> Any:
    return getattr(*_holder(path))


def _write(path: str, value: Any) -> None:
    setattr(*_holder(path), value)
