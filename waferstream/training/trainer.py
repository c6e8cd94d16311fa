"""Train and evaluate a configured model with cstorch, as a hand-written program does.

Training runs in stages with an evaluation after each; progress, events and figures observe it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

import cstorch
from appliance.checkpoints import CheckpointFolder
from cstorch.amp import GradScaler
from cstorch.backend import Backend
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.scheduler import Scheduler
from cstorch.sparse.algorithm import Hook
from cstorch.utils.data import DataExecutor, DataLoader
from cstorch.utils.data.dataloader import BATCHES
from cstorch.utils.data.profiler import Profiler
from waferstream.config.callbacks import (
    KeepNCheckpoints,
    LogSparsity,
    NotFiniteSteps,
)
from waferstream.config.params import InitConfig, Params
from waferstream.loggers import Logger
from waferstream.training.build import (
    Step,
    make_loader,
    make_model,
    make_optimizer,
    make_scaler,
    make_watch,
    training_step,
)
from waferstream.training.callback import Callbacks, make_callbacks
from waferstream.training.evaluation import Evaluator, checkpoints_to_evaluate, length_of
from waferstream.training.flags import scoped_flags
from waferstream.training.listening import listening, make_input_logs, make_listeners
from waferstream.training.not_finite import NotFiniteRule
from waferstream.training.observers import Observer, TrainingReporter
from waferstream.training.restoring import Restorer
from waferstream.training.run_plan import RunPlan, Stage, plan_run
from waferstream.training.saving import Saver
from wsc.checkpoint.reader import Reader
from wsc.core.digest import weights_digest
from wsc.core.errors import CheckpointError, ConfigError, NotFiniteStepError
from wsc.core.hyper_schedules.base import HyperSchedule
from wsc.core.hyper_schedules.composed import ShiftedLR
from wsc.core.interrupts import Grace
from wsc.core.sparsity_groups import check_updates

log = logging.getLogger("waferstream")

_GRACE_S = 20
"""How long steps may take after Ctrl-C or SIGTERM; most schedulers kill after 30 s."""


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

    def __init__(self, params: Params, backend: Backend, observers: Sequence[Observer]) -> None:
        self._trainer = params.trainer
        self._init: InitConfig = params.trainer.init
        self._backend = backend
        self._folder = CheckpointFolder(
            self._init.model_dir, self._init.checkpoint.checkpoint_name, self._keep()
        )
        survives = self._init.autorestart is not None
        self._saver = Saver(self._folder, backend, self._saves_in_background(), goes_on=survives)
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
        self._restorer = Restorer(self, self._init, backend, self._folder, self._callbacks)
        self._callbacks.call("pre_setup", self)
        self._callbacks.call("setup", self)
        with backend.device:
            self.model: nn.Module = make_model(self._init)
        cstorch.compile(self.model, backend)
        self._evaluator = Evaluator(
            self, self._init, backend, self.model, self._observers, self._callbacks
        )
        self._callbacks.call("post_setup", self)

    def fit(self, evaluates: bool) -> Outcome:
        """Train; evaluate in between if ``evaluates`` and evaluation data is configured."""
        fit = self._trainer.fit
        if fit is None or self._init.optimizer is None:
            missing = "trainer.fit" if fit is None else "trainer.init.optimizer"
            raise ConfigError(
                f"training requires {missing}", code="missing-key", where="params file"
            )
        self._folder.prepare()
        self._restorer.start_from(fit.ckpt_path)
        loader = make_loader(
            self._init, fit.train_dataloader, "train", "trainer.fit.train_dataloader"
        )
        evaluations = self._evaluator.loaders(
            fit.val_dataloader if evaluates else (), "trainer.fit.val_dataloader"
        )
        plan = plan_run(
            self._init.loop,
            start=self._backend.global_step,
            steps_in_epoch=length_of(loader),
            log_every=self._init.logging.log_steps,
            checkpoint_every=self._init.checkpoint.steps or 0,
            evaluates=bool(evaluations),
        )
        if not plan.stages:
            return self._nothing_left(plan)
        check_updates(self._init.sparsity or (), plan.end, "trainer.init.sparsity")
        self.optimizer, self.schedulers = make_optimizer(self._init, self.model)
        self._log_sparsity(self.optimizer)
        self._scaler = make_scaler(self._init)
        self._restorer.load_states(self._scaler, self.schedulers, loader)
        states = (self.model, self.optimizer, self.schedulers, self._scaler)
        step = training_step(self._init, *states, self._callbacks, self)
        self._backend.watch = make_watch(self._init, plan.start)
        rate = self._rate()
        logs_scale = self._init.precision.log_loss_scale is not False
        reporter = TrainingReporter(plan, self._profiler, rate, self._observers, logs_scale)
        listeners = make_listeners(self._init, self._observers)
        with self._saver, self._fitting(loader, evaluations):
            for number, stage in enumerate(plan.stages):
                about = (self, self.model)
                with scoped_flags(self._init, "train"), listening(listeners):
                    self._callbacks.call("on_train_start", *about, loader, self._init.loop, number)
                    self._train_stage(loader, step, plan, stage, reporter)
                    self._callbacks.call("on_train_end", *about, self._init.loop, number)
                if stage.evaluates:
                    self._evaluator.evaluate_all(evaluations)
                if not self._backend.is_e2e_execution:
                    return Outcome(plan.start + 1, plan.end, None, None)
        digest = self._backend.weights_digest()
        if self._not_finite.num_steps:
            log.info("Steps that were not finite: %d", self._not_finite.num_steps)
        log.info("Training completed successfully!")
        unwritten = self._saver.unwritten
        return Outcome(plan.start + 1, plan.end, digest, self._checkpoint, unwritten)

    @property
    def backend(self) -> Backend:
        """The backend that trains."""
        return self._backend

    @property
    def global_step(self) -> int:
        """Steps of training that have been done."""
        return self._backend.global_step

    @property
    def model_dir(self) -> Path:
        """The folder of the run."""
        return self._init.model_dir

    def log_metrics(self, **metrics: Any) -> None:
        """Write numbers to the event files, in a loop those of its step at log steps.

        Args:
            metrics: Numbers or scalars of a step, by name.
        """
        if self._backend.loop is None:
            self._send(metrics)
        else:
            self._send_later(metrics)

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
            observer.summarized(self._backend.global_step, numbers)

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
        validation = self._trainer.validation
        if validation is None:
            raise ConfigError(
                "evaluation requires trainer.validate", code="missing-key", where="params file"
            )
        loaders = self._evaluator.loaders(
            (validation.val_dataloader,), "trainer.validate.val_dataloader"
        )
        self._restorer.start_from(validation.ckpt_path)
        if self._restorer.path is None:
            log.warning(
                "No checkpoint in %s, and none is named (--checkpoint_path): the evaluation is of "
                "the initial weights, before any training",
                self.model_dir,
            )
        self._evaluator.evaluate_all(loaders)
        return self._evaluated()

    def validate_all(self) -> Outcome:
        """Evaluate every checkpoint on every data set."""
        section = self._trainer.validate_all
        if section is None or not section.val_dataloaders:
            missing = "trainer.validate_all" + (".val_dataloaders" if section else "")
            raise ConfigError(
                f"eval_all requires {missing}", code="missing-key", where="params file"
            )
        paths = checkpoints_to_evaluate(section.ckpt_paths, self._folder)
        loaders = self._evaluator.loaders(
            section.val_dataloaders, "trainer.validate_all.val_dataloaders"
        )
        for path in paths:
            self._restorer.start_from(path)
            self._backend.reload()
            self._evaluator.evaluate_all(loaders)
        return self._evaluated()

    def _train_stage(
        self,
        loader: DataLoader,
        step: Step,
        plan: RunPlan,
        stage: Stage,
        reporter: TrainingReporter,
    ) -> None:
        """Train all steps of a stage; go back as often as a step is not finite, if asked for."""
        parts = self._not_finite.parts(stage.first, stage)
        while parts:
            part, left_out = parts.pop(0)
            if left_out:
                loader.load_state_dict({BATCHES: loader.state_dict()[BATCHES] + left_out})
            try:
                self._train(loader, step, plan, part, reporter)
            except NotFiniteStepError as error:
                done = self._go_back(error, loader)
                reporter.forget_after(done)
                parts = self._not_finite.parts(done + 1, stage)

    def _go_back(self, error: NotFiniteStepError, loader: DataLoader) -> int:
        """Return to the newest checkpoint, and leave out a batch from now on; return its step.

        Raises:
            NotFiniteStepError: Going back is not asked for, or there is no checkpoint.
            ApplianceNanError: The run went back too often.
        """
        self._saver.finish()
        path = self._folder.newest() if self._not_finite.rolls_back else None
        if path is None:
            raise error
        self._not_finite.leave_out(error)
        log.warning(
            "%s: the run goes back to %s and leaves out the batch of step %d",
            error.what, path.name, error.step,
        )  # fmt: skip
        self._restorer.restore(path)
        self._backend.reload()
        self._scaler.current = make_scaler(self._init).current  # step 0 has skipped no step
        self._restorer.load_states(self._scaler, self.schedulers, loader)
        return self._backend.global_step

    def _train(
        self,
        loader: DataLoader,
        step: Step,
        plan: RunPlan,
        stage: Stage,
        reporter: TrainingReporter,
    ) -> None:
        executor = DataExecutor(
            loader,
            num_steps=len(stage),
            activation_steps=stage.relative(set(plan.log_steps)),
            checkpoint_steps=stage.relative(set(plan.checkpoint_steps)),
        )
        executor.profiler = self._profiler
        grace = Grace(
            _GRACE_S,
            lambda: log.warning(
                "Interrupted: a checkpoint is saved after the current steps, within %d s. "
                "Interrupt again to end at once",
                _GRACE_S,
            ),
        )

        @cstorch.step_closure
        def report(_loss: object, position: int) -> None:
            self._not_finite.take(executor.results)
            reporter.take(executor.results, stage, position)
            self._saver.check()
            grace.begin()
            if grace.is_asked and not executor.is_checkpoint_step:
                save_now()

        def save_now() -> None:
            self._save(self._objects(stage.first + executor.iteration, loader))
            grace.end()

        save = cstorch.checkpoint_closure(save_now)

        initial = self._objects(plan.start, loader) if self._saves_initially else {}

        with grace.given() if plan.checkpoint_steps else nullcontext():
            for index, batch in enumerate(executor):
                self._callbacks.call("on_train_batch_start", self, self.model, batch, index)
                loss = step(batch)  # the first call installs the program; a step runs at the end
                if self._saves_initially:
                    self._save(initial)
                report(loss, loss.position)
                outputs = {"loss": loss}
                self._callbacks.call("on_train_batch_end", self, self.model, outputs, batch, index)
                save()
        grace.end()

    def _save(self, objects: dict[str, Any]) -> None:
        """Save a checkpoint, to whose states callbacks may add their own, of JSON types."""
        self._callbacks.call("on_save_checkpoint", self, objects)
        if self._saver.save(objects):
            self._callbacks.call("on_after_save_checkpoint", self, str(self._saver.newest))

    @property
    def _checkpoint(self) -> Path | None:
        """The newest checkpoint of the run, or the one that it started from."""
        return self._saver.newest or self._restorer.path

    def _saves_in_background(self) -> bool:
        """Whether checkpoints are written while training goes on."""
        if self._init.checkpoint.async_save and self._init.autorestart is not None:
            log.info("Checkpoints are saved at once: restarts (autorestart) begin from them")
            return False
        return self._init.checkpoint.async_save

    @property
    def _saves_initially(self) -> bool:
        """Whether a checkpoint of the initial weights is still due."""
        asked = self._init.checkpoint.save_initial_checkpoint or self._not_finite.rolls_back
        return asked and self._checkpoint is None and self._backend.is_e2e_execution

    def _objects(self, step: int, loader: DataLoader) -> dict[str, Any]:
        """Return the states of a checkpoint after a step that are not tensors."""
        objects: dict[str, Any] = {
            "global_step": step,
            "seed": self._init.seed,
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
            "dataloader": loader.state_dict(),
        }
        if self._scaler.dynamic:
            objects["grad_scaler"] = self._scaler.state_dict()
        return objects

    def _rate(self) -> HyperSchedule | None:
        """Return the learning rate by the number of applied steps of training."""
        done = self._backend.global_step - self._scaler.current.num_skipped_steps
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
        log.info("Nothing left to train: %s is at step %d", self._checkpoint, plan.start)
        if self._checkpoint is None:
            return Outcome(plan.start + 1, plan.start, None, None)
        reader = Reader(self._checkpoint)
        names = [name for name, _ in self.model.named_parameters()]  # no buffers, none twice
        masters = ((name, reader[f"model.{name}"]) for name in names)
        return Outcome(plan.start + 1, plan.start, weights_digest(masters), self._checkpoint)

    def _evaluated(self) -> Outcome:
        step = self._backend.global_step
        digest = self._backend.weights_digest() if self._backend.is_e2e_execution else None
        log.info("Evaluation completed successfully!")
        return Outcome(step, step, digest, self._checkpoint)
