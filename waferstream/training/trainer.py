"""Train and evaluate a configured model with cstorch, as a hand-written program does.

Training runs in stages with an evaluation after each; progress, events and figures observe it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

import cstorch
from appliance.checkpoints.folder import CheckpointFolder
from cstorch.amp import GradScaler
from cstorch.backend import Backend
from cstorch.loop.profiler import Profiler
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.scheduler import Scheduler
from cstorch.sparse.algorithm import Hook
from cstorch.utils.data import DataLoader
from waferstream.checkpoint.reader import Reader
from waferstream.config.params import InitConfig, Params
from waferstream.config.sections.callbacks import KeepNCheckpoints, LogSparsity, NotFiniteSteps
from waferstream.core.digest import weights_digest
from waferstream.core.errors import CheckpointError
from waferstream.core.events import Milestone
from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.core.hyper_schedules.composed import ShiftedLR
from waferstream.core.sparsity.groups import check_updates
from waferstream.core.stores import store_of
from waferstream.training.callback import Callbacks, make_callbacks
from waferstream.training.checkpoints.provenance import record_of
from waferstream.training.checkpoints.restoring import Restorer
from waferstream.training.checkpoints.saving import Saver
from waferstream.training.evaluation import Evaluator, checkpoints_to_evaluate, length_of
from waferstream.training.launch import Launch
from waferstream.training.not_finite import NotFiniteRule
from waferstream.training.observers.listeners import listening, make_input_logs, make_listeners
from waferstream.training.observers.logger import Logger
from waferstream.training.observers.observer import Observer, TrainingReporter
from waferstream.training.prediction import predict_when_compiled
from waferstream.training.run import Run
from waferstream.training.run_plan import RunPlan, plan_run
from waferstream.training.setup.backend import scoped_flags
from waferstream.training.setup.loaders import make_loader
from waferstream.training.setup.model import (
    make_model,
    make_optimizer,
    make_scaler,
    make_watch,
    select_gradients,
)
from waferstream.training.setup.steps import training_step
from waferstream.training.training_loop import TrainingLoop, Work

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

    first_step: int
    last_step: int
    weights_sha256: str | None  # None if nothing was executed
    checkpoint: Path | None
    unwritten: CheckpointError | None = None  # why the last checkpoint is missing

    @property
    def has_steps(self) -> bool:
        """Whether a step was left to do when the run began."""
        return self.last_step >= self.first_step


class Trainer:
    """Run of one configuration on one backend."""

    def __init__(
        self,
        params: Params,
        backend: Backend,
        observers: Sequence[Observer],
        launch: Launch | None = None,
    ) -> None:
        self._trainer = params.trainer
        self._init: InitConfig = params.trainer.init
        self.backend = backend
        """The backend that trains."""
        self.session = backend.session
        self._launch = launch if backend.session.settings.is_e2e_execution else None
        self._reporter = None if launch is None else launch.reporter
        self._folder = CheckpointFolder(
            self._init.model_dir, self._init.checkpoint.checkpoint_name, self._keep()
        )
        survives = self._is_protected
        self._record: Mapping[str, Any] = {}
        self._saver = Saver(
            self._folder,
            self.session,
            self._saves_in_background(),
            goes_on=survives,
            store=store_of(self._init.model_dir),
        )
        self._scaler = GradScaler()
        self.optimizer: Optimizer | None = None
        self.schedulers: list[Scheduler] = []
        policy = self._init.callback(NotFiniteSteps) or NotFiniteSteps()
        self._not_finite = NotFiniteRule(policy, self._init.precision.scales_dynamically)
        self._profiler = Profiler()  # over all training stages
        self._send_later = cstorch.step_closure(self._send)
        own = make_callbacks(self._init)
        self.loggers = [each for each in own if isinstance(each, Logger)]
        """Loggers among the callbacks; whoever ends the run closes them."""
        self._observers: Sequence[Observer] = [*observers, *self.loggers]
        self._callbacks = Callbacks([*own, *make_input_logs(self._init, backend.artifact_dir)])
        run = self._run = Run(self._init, self.session, self._callbacks, self)
        self._restorer = Restorer(run, self._folder)
        self._callbacks.call("pre_setup", self)
        self._callbacks.call("setup", self)
        with backend.device:
            self.model: nn.Module = make_model(self._init)
        select_gradients(self._init, self.model)
        cstorch.compile(self.model, backend)
        self._evaluator = Evaluator(run, self._observers)
        self._callbacks.call("post_setup", self)

    def fit(self, evaluates: bool) -> Outcome:
        """Train; evaluate in between if ``evaluates`` and evaluation data is configured."""
        self._trainer.check("train")
        fit = self._trainer.fit
        assert fit is not None, "checked"
        self._folder.prepare()
        runtime = self.backend.cluster_config.cluster.runtime
        self._record = record_of(self._init, self.model, fit.train_dataloader, runtime)
        if self._launch is None or not self._restorer.go_on_with(self._launch):
            self._restorer.start_from(fit.ckpt_path, self._record)
        loader = make_loader(
            self._init, fit.train_dataloader, "train", "trainer.fit.train_dataloader"
        )
        evaluations = self._evaluator.loaders(
            fit.val_dataloader if evaluates else (), "trainer.fit.val_dataloader"
        )
        plan = self._plan(loader, bool(evaluations))
        if not plan.stages or self._restorer.is_run_over:
            return self._nothing_left(plan)
        if self._reporter is not None and plan.done == plan.start:
            predict_when_compiled(self.session, plan, self._reporter)
        loop = self._make_loop(loader, plan)
        listeners = make_listeners(self._init, self._observers)
        with self._saver, loop.giving_grace(), self._fitting(loader, evaluations):
            for number, stage in enumerate(plan.stages):
                if stage:
                    about = (self, self.model)
                    with scoped_flags(self._init, "train"), listening(listeners):
                        self._callbacks.call(
                            "on_train_start", *about, loader, self._init.loop, number
                        )
                        loop.train(stage, self._profiler)
                        self._callbacks.call("on_train_end", *about, self._init.loop, number)
                if stage.evaluates:
                    with loop.saving_when_asked(stage) as is_ending:
                        self._evaluator.evaluate_all(evaluations, is_ending)
                if not self.session.settings.is_e2e_execution:
                    return Outcome(plan.start + 1, plan.end, None, None)
        digest = self.session.model.digest()
        if self._not_finite.num_steps:
            log.info("Steps that were not finite: %d", self._not_finite.num_steps)
        log.info(Milestone.TRAINED)
        unwritten = self._saver.unwritten
        return Outcome(plan.start + 1, plan.end, digest, self._kept_checkpoint(), unwritten)

    @property
    def global_step(self) -> int:
        """Steps of training that have been done."""
        return self.session.global_step

    @property
    def model_dir(self) -> Path:
        """The folder of the run."""
        return self._init.model_dir

    def log_metrics(self, **metrics: Any) -> None:
        """Write numbers to the event files, in a loop those of its step at log steps.

        Args:
            metrics: Numbers or scalars of a step, by name.
        """
        if self.session.loop is None:
            self._send(metrics)
        else:
            self._send_later(metrics)

    def _plan(self, loader: DataLoader, evaluates: bool) -> RunPlan:
        """Plan the steps from the checkpoint that was restored."""
        done, start = self.session.global_step, self._restorer.run_start
        return plan_run(
            self._init.loop,
            start=done if start is None else start,
            done=done,
            steps_in_epoch=length_of(loader),
            log_every=self._init.logging.log_steps,
            checkpoint_every=self._init.checkpoint.steps or 0,
            evaluates=evaluates,
        )

    def _make_loop(self, loader: DataLoader, plan: RunPlan) -> TrainingLoop:
        """Make what trains, in the state of the checkpoint that was restored."""
        check_updates(self._init.sparsity or (), plan.end, "trainer.init.sparsity")
        self.optimizer, self.schedulers = make_optimizer(self._init, self.model)
        self._log_sparsity(self.optimizer)
        self._scaler = make_scaler(self._init)
        self._restorer.load_states(self._scaler, self.schedulers, loader)
        states = (self.model, self.optimizer, self.schedulers, self._scaler)
        step = training_step(self._init, *states, self._callbacks, self)
        self.session.execution.watch = make_watch(self._init, plan.start)
        logs_scale = self._init.precision.log_loss_scale is not False
        reporter = TrainingReporter(plan, self._profiler, self._rate(), self._observers, logs_scale)
        work = Work(loader, step, plan, reporter, self.schedulers, self._scaler, self._record)
        return TrainingLoop(
            self._run, self._saver, self._restorer, self._not_finite, work, self._launch
        )

    def _log_sparsity(self, optimizer: Optimizer) -> None:
        """Let the callback ``LogSparsity`` see the shares of zeros after activation steps."""
        sparsity = optimizer.sparsity
        if sparsity is None or self._init.callback(LogSparsity) is None:
            return

        def log_as(kind: str) -> Hook:
            return lambda _, name, share: self._send({f"sparsity/{name}/{kind}": share})

        sparsity.register_target_sparsity_hook(log_as("target"))
        sparsity.register_computed_sparsity_hook(log_as("actual"))

    def _send(self, metrics: Mapping[str, Any]) -> None:
        numbers = {name: float(value) for name, value in metrics.items()}
        for observer in self._observers:
            observer.summarized(self.session.global_step, numbers)

    @contextmanager
    def _fitting(self, loader: DataLoader, evaluations: Sequence[DataLoader]) -> Iterator[None]:
        """Call the hooks around training."""
        loop = self._init.loop
        self._callbacks.call("on_fit_start", self, loader, list(evaluations), loop)
        try:
            yield
        except Exception as error:
            self._callbacks.call("on_train_exception", self, error)
            self._callbacks.call("on_fit_exception", self, error)
            raise
        self._callbacks.call("on_fit_end", self, loop)

    def validate(self) -> Outcome:
        """Evaluate one checkpoint."""
        self._trainer.check("eval")
        validation = self._trainer.validation
        assert validation is not None, "checked"
        loaders = self._evaluator.loaders(
            (validation.val_dataloader,), "trainer.validate.val_dataloader"
        )
        self._restorer.start_from(validation.ckpt_path, record_of(self._init, self.model))
        if self._restorer.path is None and self.session.settings.is_e2e_execution:
            log.warning(
                "No checkpoint in %s, and none is named (--checkpoint_path): the evaluation is of "
                "the initial weights, before any training",
                self.model_dir,
            )
        self._evaluator.evaluate_all(loaders)
        return self._evaluated()

    def validate_all(self) -> Outcome:
        """Evaluate every checkpoint on every data set."""
        self._trainer.check("eval_all")
        section = self._trainer.validate_all
        assert section is not None, "checked"
        loaders = self._evaluator.loaders(
            section.val_dataloaders, "trainer.validate_all.val_dataloaders"
        )
        if not self.session.settings.is_e2e_execution:
            self._evaluator.evaluate_all(loaders)
            return self._evaluated()
        for path in checkpoints_to_evaluate(section.ckpt_paths, self._folder):
            self._restorer.start_from(path, record_of(self._init, self.model))
            self.session.reload()
            self._evaluator.evaluate_all(loaders)
        return self._evaluated()

    @property
    def _checkpoint(self) -> Path | None:
        """The newest checkpoint of the run, or the one that it started from."""
        return self._saver.newest or self._restorer.path

    @property
    def _is_protected(self) -> bool:
        """Whether the run goes on after a loss."""
        return self.backend.cluster_config.autorestart is not None

    def _saves_in_background(self) -> bool:
        """Return whether checkpoints are written while training goes on."""
        if self._init.checkpoint.async_save and self._is_protected:
            log.info("Checkpoints are saved at once: restarts (autorestart) begin from them")
            return False
        return self._init.checkpoint.async_save

    def _rate(self) -> HyperSchedule | None:
        """Return the learning rate by the number of applied steps of training."""
        done = self.session.global_step - self._scaler.current.num_skipped_steps
        for scheduler in self.schedulers:
            if scheduler.key == "lr":
                offset = scheduler.last_epoch - done
                return ShiftedLR(scheduler=scheduler.schedule, offset=offset)
        return None

    def _keep(self) -> int | None:
        callback = self._init.callback(KeepNCheckpoints)
        return None if callback is None else callback.n

    def _nothing_left(self, plan: RunPlan) -> Outcome:
        """Report that the checkpoint is at the last step, with the digest of its weights."""
        log.info("Nothing left to train: %s is at step %d", self._checkpoint, plan.done)
        if self._checkpoint is None:
            return Outcome(plan.done + 1, plan.done, None, None)
        reader = Reader(self._checkpoint)
        names = [name for name, _ in self.model.named_parameters()]  # no buffers, none twice
        digest = weights_digest((name, reader[f"model.{name}"]) for name in names)
        first = 1 + (plan.done if self._restorer.is_run_over else plan.start)
        return Outcome(first, plan.done, digest, self._kept_checkpoint())

    def _kept_checkpoint(self) -> Path | None:
        """Return the newest checkpoint of a run that ends.

        Those that only the ends of earlier launches have left are removed.
        """
        if self._launch is not None:
            self._folder.remove(self._launch.has_paused)
        path = self._checkpoint
        return path if path and path.exists() else None

    def _evaluated(self) -> Outcome:
        step = self.session.global_step
        digest = self.session.model.digest() if self.session.settings.is_e2e_execution else None
        log.info(Milestone.EVALUATED)
        return Outcome(step, step, digest, self._checkpoint)
