"""Run one session from start to finish; backend, cluster and files are always closed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path

import torch

import cstorch
from appliance.faults.plan import FaultPlan
from appliance.spec import ClusterSpec, RoleLogSpec
from cstorch.backend import Backend
from cstorch.flags import restored
from timing.record import DEFAULT_LIMIT
from waferstream.config.callbacks import CheckLoss, TensorBoardLogger
from waferstream.config.callbacks import ProgressLogger as ProgressConfig
from waferstream.config.params import Mode, Params
from waferstream.reports.history import HISTORY_NAME, HistoryFile
from waferstream.reports.summary import RunSummary
from waferstream.training.flags import global_flags
from waferstream.training.history import History, Recorder
from waferstream.training.observers import Events, Observer, Progress
from waferstream.training.run_folder import RunFolder, claimed, writable_or_temporary
from waferstream.training.summary import log_places, log_throughput, summarize
from waferstream.training.tracing import TraceRequest
from waferstream.training.trainer import Outcome, Trainer
from wsc.core.config import validate

log = logging.getLogger("waferstream")

_COMPILED = "cached_compile"
_TRAINING: tuple[Mode, ...] = ("train", "train_and_eval")


def run_session(
    params: Params,
    mode: Mode,
    cluster: ClusterSpec | None = None,
    trace: TraceRequest | None = None,
    faults: Sequence[str] = (),
    command: str = "",
) -> RunSummary:
    """Train or evaluate, write the results, print ``Weights SHA-256: <hex>``.

    Args:
        params: Configuration of the run.
        mode: What to run.
        cluster: The machine; the default one if None.
        trace: The Perfetto trace of emulated and measured time to write.
        faults: Further faults (see appliance.faults.plan), as a user writes them.
        command: The command line, for the log of the run.

    Returns:
        The summary, which is also in the folder of the run unless that had nothing to do.

    Raises:
        WaferStreamError: the run failed.
    """
    if trace is not None:
        trace.check()
    torch.set_num_threads(1)  # the cores belong to the cluster
    history, model_dir = History(), params.trainer.init.model_dir
    outputs = model_dir if mode in _TRAINING else writable_or_temporary(model_dir)
    losses = HistoryFile(outputs / HISTORY_NAME)
    digest: str | None = None
    with RunFolder(outputs, command) as folder:
        try:
            with ExitStack() as stack:
                if mode in _TRAINING:
                    stack.enter_context(claimed(model_dir))
                cluster = _with_role_logs(cluster or ClusterSpec(), params, folder)
                cluster = _with_faults(cluster, faults, model_dir)
                _configure(stack, params, cluster, folder)
                backend = make_backend(params, cluster, trace, outputs / _COMPILED)
                _close_with(stack, backend, folder)
                recorder = Recorder(losses, _about(params, cluster, mode, folder))
                others = _observers(params, cluster, folder, backend)
                trainer = _trainer(stack, params, backend, (history, recorder, *others))
                with nullcontext() if trace is None else trace.writing(lambda: backend):
                    outcome = _run_mode(mode, trainer)
                    digest = outcome.weights_sha256
            summary = summarize(params, cluster, mode, trainer.model, outcome, history, backend)
            if outcome.has_steps:
                log_throughput(history, cluster.machine, summary.num_csx)
                _write(folder, summary, losses, cluster, backend, command)
            else:
                folder.discard()
            if outcome.unwritten is not None:
                raise outcome.unwritten
        finally:  # also when files about the run cannot be written any more
            _tell_digest(folder, digest)
    return summary


def _configure(stack: ExitStack, params: Params, cluster: ClusterSpec, folder: RunFolder) -> None:
    """Save the resolved configuration, and set its flags until the stack ends."""
    folder.save_configuration(params, cluster)
    stack.enter_context(restored())
    stack.enter_context(global_flags(params.trainer.init))


def _trainer(
    stack: ExitStack, params: Params, backend: Backend, observers: Sequence[Observer]
) -> Trainer:
    """Build the trainer; observers and loggers are closed with the stack."""
    for observer in observers:
        stack.enter_context(closing(observer))
    trainer = Trainer(params, backend, observers)
    for logger in trainer.loggers:
        stack.enter_context(closing(logger))
    return trainer


def _write(
    folder: RunFolder,
    summary: RunSummary,
    losses: HistoryFile,
    cluster: ClusterSpec,
    backend: Backend,
    command: str,
) -> None:
    """Write the results of a run to its folder, and log where they lie."""
    from waferstream.training.results import write_report, write_results  # noqa: PLC0415  (slow)

    curves = losses.curves()
    write_results(folder, summary, curves)
    report = write_report(folder, summary, curves, cluster, backend.training, command)
    log_places(folder, losses.path, summary, report)


def _tell_digest(folder: RunFolder, digest: str | None) -> None:
    """Print the digest of the weights, if there are any, and append it to the log."""
    if digest is not None:
        line = f"Weights SHA-256: {digest}"
        print(line, flush=True)
        folder.note(line)


def _about(
    params: Params, cluster: ClusterSpec, mode: Mode, folder: RunFolder
) -> Mapping[str, str | int]:
    """Describe a run in the history of its model."""
    num_csx = params.trainer.init.backend.cluster_config.num_csx
    return {
        "run": folder.path.name,
        "mode": mode,
        "num_csx": num_csx,
        "system": cluster.machine.system.name,
    }


def _close_with(stack: ExitStack, backend: Backend, folder: RunFolder) -> None:
    """Let a backend end with the stack, and write its jobs to the run folder then."""
    backend.artifact_dir = folder.path
    stack.callback(lambda: folder.save_jobs(backend.jobs))
    stack.callback(backend.shutdown)


def _with_role_logs(cluster: ClusterSpec, params: Params, folder: RunFolder) -> ClusterSpec:
    """Return a cluster whose roles log into the run folder at ``logging.wsc_log_level``."""
    levels = params.trainer.init.logging.role_levels
    if not levels:
        return cluster
    log = RoleLogSpec(folder=(folder.path / "roles").resolve(), levels=levels)
    runtime = cluster.runtime.model_copy(update={"log": log})
    return cluster.model_copy(update={"runtime": runtime})


def _with_faults(cluster: ClusterSpec, faults: Sequence[str], model_dir: Path) -> ClusterSpec:
    """Return a cluster with further faults; what has happened is kept in the model's folder."""
    plan = cluster.runtime.faults
    further = validate(FaultPlan, {"stated": list(faults)}, "--fault").stated
    changed = {"stated": (*plan.stated, *further), "folder": plan.folder or model_dir / "faults"}
    runtime = cluster.runtime.model_copy(update={"faults": plan.model_copy(update=changed)})
    return cluster.model_copy(update={"runtime": runtime})


def make_backend(
    params: Params,
    cluster: ClusterSpec,
    trace: TraceRequest | None = None,
    compile_dir: Path | None = None,
) -> Backend:
    """Build the backend of a configuration.

    Args:
        params: The configuration.
        cluster: The machine.
        trace: What activities are recorded for, if they are.
        compile_dir: The compile cache, unless the configuration names one.
    """
    init = params.trainer.init
    job = init.backend.cluster_config
    precision = init.precision
    cstorch.amp.enable_mixed_precision(precision.enabled)
    cstorch.amp.set_half_dtype(precision.fp16_type)
    csx = cstorch.backends.csx
    csx.precision.optimization_level = precision.precision_opt_level
    csx.precision.stochastic_rounding = precision.stochastic_rounding
    backend = cstorch.backend(
        init.backend.backend_type,
        cluster_config=cstorch.ClusterConfig(
            num_csx=job.num_csx,
            max_wgt_servers=job.max_wgt_servers,
            num_workers_per_csx=job.num_workers_per_csx,
            job_labels=job.job_labels,
            job_priority=job.job_priority,
            job_time_sec=job.job_time_sec,
            cluster=cluster,
            autorestart=init.autorestart,
            record=trace is not None,
            record_limit=DEFAULT_LIMIT if trace is None else trace.limit,
        ),
        compile_dir=init.backend.compile_dir or compile_dir or init.model_dir / _COMPILED,
        compile_only=init.backend.compile_only,
        validate_only=init.backend.validate_only,
        seed=init.seed,
        check_loss=init.callback(CheckLoss) is not None,
    )
    backend.logs_progress = False  # observers report it
    backend.bars = ("eval",)
    return backend


def _observers(
    params: Params, cluster: ClusterSpec, folder: RunFolder, backend: Backend
) -> Sequence[Observer]:
    init = params.trainer.init
    observers: list[Observer] = []
    for logger in init.loggers:
        if isinstance(logger, ProgressConfig) and params.trainer.fit is not None:
            machine = f"{init.backend.cluster_config.num_csx} x {cluster.machine.system.name}"
            batch_size = params.trainer.fit.train_dataloader.batch_size
            device = init.backend.backend_type
            observers.append(
                Progress(machine, batch_size, folder.note, device, lambda: backend.newest_step)
            )
        elif isinstance(logger, TensorBoardLogger):
            observers.append(Events((logger.summary_dir or folder.path) / (logger.run_name or "")))
    return observers


def _run_mode(mode: Mode, trainer: Trainer) -> Outcome:
    if mode in ("train", "train_and_eval"):
        return trainer.fit(evaluates=mode == "train_and_eval")
    return trainer.validate() if mode == "eval" else trainer.validate_all()
