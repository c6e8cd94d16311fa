"""Run one session from start to finish; backend, cluster and files are always closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from appliance.faults.plan import FaultPlan
from appliance.spec import ClusterSpec, RoleLogSpec
from cstorch.backend import Backend
from cstorch.flags import restored
from waferstream.config.params import Mode, Params
from waferstream.config.sections.callbacks import ProgressLogger as ProgressConfig
from waferstream.config.sections.callbacks import TensorBoardLogger
from waferstream.core.config import validate
from waferstream.core.roles.installation import Installation
from waferstream.core.units import format_count
from waferstream.host.words import PLAIN_LOG
from waferstream.reports.run.history import HISTORY_NAME, HistoryFile
from waferstream.reports.run.summary import RunSummary
from waferstream.training.checkpoints.export import check_export, export_checkpoint
from waferstream.training.checkpoints.stored import stored
from waferstream.training.launch import Launch
from waferstream.training.observers.events import Events
from waferstream.training.observers.history import History, Recorder
from waferstream.training.observers.observer import Observer
from waferstream.training.observers.progress import Progress
from waferstream.training.observers.reporting import Reporting
from waferstream.training.observers.telemetry import TelemetryMeter
from waferstream.training.results.claim import claimed
from waferstream.training.results.run_folder import RunFolder, writable_or_temporary
from waferstream.training.results.summary import log_places, log_throughput, summarize
from waferstream.training.setup.backend import COMPILED, global_flags, make_backend
from waferstream.training.trace_request import TraceRequest
from waferstream.training.trainer import Outcome, Trainer

_TRAINING: tuple[Mode, ...] = ("train", "train_and_eval")


def run_session(
    params: Params,
    mode: Mode,
    cluster: ClusterSpec | None = None,
    trace: TraceRequest | None = None,
    faults: Sequence[str] = (),
    command: str = "",
    launch: Launch | None = None,
) -> RunSummary:
    """Train or evaluate, write the results, print ``Weights SHA-256: <hex>``.

    Args:
        params: Configuration of the run.
        mode: What to run.
        cluster: The machine; the default one if None.
        trace: The Perfetto trace of emulated and measured time to write.
        faults: Further faults (see appliance.faults.plan), as a user writes them.
        command: The command line, for the log of the run.
        launch: The launch of a workflow that the run is; None where nobody manages it.

    Returns:
        The summary, which is also in the folder of the run unless that had nothing to do.

    Raises:
        WaferStreamError: the run failed.
    """
    if trace is not None:
        trace.check()
    torch.set_num_threads(1)  # the cores belong to the cluster
    model_dir = params.trainer.init.model_dir
    outputs = model_dir if mode in _TRAINING else writable_or_temporary(model_dir)
    with (
        stored(model_dir, mode),
        RunFolder(outputs, command, launch.folder_name if launch else None) as folder,
    ):
        machine = _with_role_logs(cluster or ClusterSpec(), params, folder)
        machine = _with_faults(machine, faults, model_dir)
        session = _Session(params, mode, machine, folder, launch)
        try:
            return session.run(trace, command)
        finally:  # also when files about the run cannot be written any more
            session.tell_digest()


class _Session:
    """One run of a configuration, from its claim on the folder of the model to its results."""

    def __init__(
        self,
        params: Params,
        mode: Mode,
        cluster: ClusterSpec,
        folder: RunFolder,
        launch: Launch | None,
    ) -> None:
        self._launch = launch
        self._params = params
        self._mode = mode
        self._cluster = cluster
        self._folder = folder
        self._history = History()
        self._losses = HistoryFile(folder.model_dir / HISTORY_NAME)
        self._digest: str | None = None  # of the weights, once there are any

    def run(self, trace: TraceRequest | None, command: str) -> RunSummary:
        """Train or evaluate, and write the results."""
        check_export(self._params.trainer.init)
        with ExitStack() as stack:
            self._claim(stack)
            self._configure(stack)
            backend = self._backend(stack, trace)
            session = backend.session
            trainer = self._trainer(stack, backend)
            self._introduce(trainer)
            with nullcontext() if trace is None else trace.writing(lambda: backend):
                outcome = _run_mode(self._mode, trainer)
                self._digest = outcome.weights_sha256
            self._export(outcome)
        summary = summarize(
            self._params, self._cluster, self._mode, trainer.model, outcome, self._history, session
        )
        if outcome.has_steps:
            if self._launch is not None:
                summary = replace(summary, **vars(self._losses.recorded(summary.first_step)))
            self._write(summary, session.execution.training, command)
        else:
            self._folder.discard()
        if outcome.unwritten is not None:
            raise outcome.unwritten
        return summary

    def tell_digest(self) -> None:
        """Print the digest of the weights, if there are any, and append it to the log."""
        if self._digest is not None:
            line = f"Weights SHA-256: {self._digest}"
            print(line, flush=True)
            self._folder.note(line)

    def _claim(self, stack: ExitStack) -> None:
        """Claim the folder of the model for training until the stack ends."""
        if self._mode in _TRAINING:
            stack.enter_context(claimed(self._params.trainer.init.model_dir))

    def _configure(self, stack: ExitStack) -> None:
        """Save the resolved configuration, and set its flags until the stack ends."""
        self._folder.save_configuration(self._params, self._cluster)
        stack.enter_context(restored())
        stack.enter_context(global_flags(self._params.trainer.init))

    def _backend(self, stack: ExitStack, trace: TraceRequest | None) -> Backend:
        """Make the backend; it ends with the stack, and its jobs are written then."""
        folder = self._folder
        backend = make_backend(
            self._params,
            self._cluster,
            trace,
            folder.model_dir / COMPILED,
            self._launch.num_csx if self._launch else 1,
        )
        backend.artifact_dir = folder.path
        stack.callback(lambda: folder.save_jobs(backend.session.execution.jobs))
        stack.callback(backend.shutdown)
        return backend

    def _trainer(self, stack: ExitStack, backend: Backend) -> Trainer:
        """Build the trainer; observers and loggers are closed with the stack."""
        recorder = Recorder(self._losses, self._about())
        configured = _configured_observers(self._params, self._cluster, self._folder, backend)
        told = _reporting(self._params, self._cluster, self._launch, backend)
        observers: Sequence[Observer] = (self._history, recorder, *configured, *told)
        for observer in observers:
            stack.enter_context(closing(observer))
        trainer = Trainer(self._params, backend, observers, self._launch)
        for logger in trainer.loggers:
            stack.enter_context(closing(logger))
        return trainer

    def _introduce(self, trainer: Trainer) -> None:
        """Log what the run is about."""
        init = self._params.trainer.init
        num_parameters = sum(each.numel() for each in trainer.model.parameters())
        PLAIN_LOG.info(
            "%s with %s parameters; results go to %s",
            type(trainer.model).__name__, format_count(num_parameters), init.model_dir,
        )  # fmt: skip

    def _export(self, outcome: Outcome) -> None:
        """Write the weights for transformers where training has ended with a checkpoint."""
        if self._mode in _TRAINING and outcome.has_steps and outcome.checkpoint is not None:
            export_checkpoint(outcome.checkpoint, self._params.trainer.init)

    def _about(self) -> Mapping[str, str | int]:
        """Describe the run in the history of its model."""
        return {
            "run": self._folder.path.name,
            "mode": self._mode,
            "num_csx": self._params.trainer.init.backend.cluster_config.num_csx,
            "system": self._cluster.machine.system.name,
        }

    def _write(self, summary: RunSummary, training: Installation | None, command: str) -> None:
        """Write the results to the folder of the run, and log where they lie."""
        from waferstream.training.results.files import write_report, write_results  # noqa: PLC0415  (slow)

        log_throughput(self._history, self._cluster.machine, summary)
        curves = self._losses.curves()
        write_results(self._folder, summary, curves)
        report = write_report(self._folder, summary, curves, self._cluster, training, command)
        log_places(self._folder, self._losses.path, summary, report)


def _run_mode(mode: Mode, trainer: Trainer) -> Outcome:
    """Let a trainer do what a mode says."""
    if mode in _TRAINING:
        return trainer.fit(evaluates=mode == "train_and_eval")
    return trainer.validate() if mode == "eval" else trainer.validate_all()


def _configured_observers(
    params: Params, cluster: ClusterSpec, folder: RunFolder, backend: Backend
) -> Sequence[Observer]:
    """Return the observers among the loggers of the configuration."""
    init = params.trainer.init
    observers: list[Observer] = []
    for logger in init.loggers:
        if isinstance(logger, ProgressConfig) and params.trainer.fit is not None:
            machine = f"{init.backend.cluster_config.num_csx} x {cluster.machine.system.name}"
            batch_size = params.trainer.fit.train_dataloader.batch_size
            device = init.backend.backend_type
            observers.append(
                Progress(
                    machine,
                    batch_size,
                    folder.note,
                    device,
                    lambda: backend.session.newest_step,
                    init.logging.words,
                )
            )
        elif isinstance(logger, TensorBoardLogger):
            observers.append(Events((logger.summary_dir or folder.path) / (logger.run_name or "")))
    return observers


def _reporting(
    params: Params, cluster: ClusterSpec, launch: Launch | None, backend: Backend
) -> Sequence[Observer]:
    """Return the observer that tells the management of a launch, if it has one."""
    if launch is None or launch.reporter is None or params.trainer.fit is None:
        return ()
    batch_size = params.trainer.fit.train_dataloader.batch_size
    num_csx = params.trainer.init.backend.cluster_config.num_csx
    meter = TelemetryMeter(cluster.machine, num_csx)
    execution = backend.session.execution
    return (Reporting(launch.reporter, batch_size, meter, lambda: execution.training),)


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
