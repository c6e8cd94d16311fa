"""The trainer of one model: fits, evaluations, checkpoints and predictions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from cstorch.closures import checkpoint_closure, step_closure
from cstorch.cluster.config import current_witness
from cstorch.compile import compile
from cstorch.current import existing_backend, replace_backend
from cstorch.loop.cadence import checked_steps
from cstorch.metrics import Metric
from cstorch.notices import say_precision
from cstorch.optim.scheduler import Scheduler
from cstorch.optim.taken import held, taken
from cstorch.optim.torch_schedule import TorchSchedule
from cstorch.simulation import simulate
from cstorch.storage import save
from cstorch.terminal import log_to_terminal
from cstorch.trace import trace
from cstorch.trainer.averages import WithAverages
from cstorch.trainer.batch import loss_of
from cstorch.trainer.callbacks import VAL_LOSS, Callback
from cstorch.trainer.config import CSConfig
from cstorch.trainer.data import FitPlan, Loaders
from cstorch.trainer.steps import Steps
from cstorch.utils.data.data_executor import DataExecutor
from cstorch.utils.data.dataloader import DataLoader
from cstorch.utils.data.given_loader import FitLoaders, loader_for
from waferstream.core.errors import ConfigError, ProgramOrderError

if TYPE_CHECKING:
    from cstorch.referee.referee import Referee

log = logging.getLogger("waferstream")

Loader = Iterable[Any] | Callable[[], Iterable[Any]]
"""A loader of global batches, or a function that makes one."""


class Trainer:
    """Training of one model.

    After ``fit`` the model has the trained weights, fetched when they are read. A new Trainer ends
    the backend of an earlier one.

    Args:
        model: The model. Called with a batch, it returns the loss, or what ``loss_fn`` takes.
        optimizer: One of ``cstorch.optim`` or of torch over the parameters of the model. Each fit
            begins with its groups and state as they are, and leaves it with the state after the
            last step.
        config: Device, steps and sizes.
        loss_fn: Called with the model's output and the target: the last element of a tuple, or
            the entry or attribute ``labels``, ``label``, ``targets``, ``target`` or ``y`` of
            another batch. By default the method ``default_loss`` of a CerebrasModel that does not
            take the target.
        check: How many of the first steps run beside a plain PyTorch loop on the whole batch, which
            their values must be equal or close to (``cstorch.referee``); 0 for none.
        scheduler: Schedules of the learning rate, of torch or of ``cstorch.optim``, stepped after
            each update. One whose rates depend on a metric (ReduceLROnPlateau) is stepped after
            each evaluation, with ``val_loss``.
        callbacks: What is called as training goes (``cstorch.trainer.Callback``).
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: CSConfig | None = None,
        loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
        check: int = 0,
        scheduler: Any = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        log_to_terminal()
        self.config = config or CSConfig()
        self.config.set_precision()
        self.callbacks = tuple(callbacks)
        self.should_stop = False
        """Whether the training ends after the step that was reported last."""
        self.optimizer = optimizer
        self._schedulers = () if scheduler is None else _several(scheduler)
        self._loss_fn = loss_fn
        self.referee = self._referee(model, check)
        """What watches the first steps; None without a check."""
        self._settings = _settings_of(optimizer)
        self._taken = taken(optimizer, is_scheduled=bool(self._schedulers))
        self._schedules = [
            each if isinstance(each, Scheduler) else TorchSchedule(each, self._taken.optimizer)
            for each in self._schedulers
            if not _reads_metric(each)
        ]
        self._scaler = Steps.scaler_of(self.config)
        self._loaders, self._limited = FitLoaders(), Loaders()
        self._val_loaders: dict[int, DataLoader] = {}
        self.model = model
        self._open()

    def fit(self, dataloader: Loader, val_dataloader: Loader | None = None) -> list[float]:
        """Train on a loader; return the losses at an interval of ``log_steps``.

        Args:
            dataloader: A loader of global batches, as torch's DataLoader, or a function that makes
                one. Every input worker gets a copy. Without ``loss_fn`` a batch may be a tensor. A
                mapping or an object has the model's arguments by name, or is its one argument.
            val_dataloader: A loader to evaluate on as ``validate`` does, at ``eval_frequency``.

        Raises:
            ConfigError: The loss is no scalar and there is no ``loss_fn``, or a batch is of
                another kind.
            ProgramOrderError: The trainer was shut down, or another one was made after it.
        """
        self._check_is_running()
        say_precision(self.backend.session, self.model)
        self._taken.take(self.optimizer)
        self._settings = _settings_of(self.optimizer)
        session, before = self.backend.session, self.backend.global_step
        loader = self._loaders.of(self._limited.of(dataloader, self.config.num_train_batches))
        plan = FitPlan.of(self.config, loader, before, val_dataloader is not None)
        self.should_stop = False
        self._call("on_fit_start")
        losses: list[float] = []
        try:
            with held(self.optimizer):
                for part in plan.parts():
                    self._train(loader, plan, part, losses)
                    if val_dataloader is not None:
                        self._step_by_metric(self.validate(val_dataloader))
                    if self.should_stop:
                        break
        finally:
            self._loaders.note_read(session.global_step - before)
            if session.execution.has_failed:
                self.shutdown()
            session.gradients.end(self.model)
            self._taken.give(self.optimizer, self._trained())
        self._call("on_fit_end")
        return losses

    def validate(self, dataloader: Loader) -> dict[str, float]:
        """Evaluate the model as it is now; return the mean loss and its metrics by name.

        Args:
            dataloader: A loader as of ``fit``; at most ``limit_val_batches`` of it are read.

        Raises:
            ConfigError: As of ``fit``, or the loader has no length.
            ProgramOrderError: As of ``fit``.
        """
        self._check_is_running()
        found = self._limited.of(dataloader, self.config.num_val_batches)
        if id(found) not in self._val_loaders:  # a new loader would be a new program
            self._val_loaders[id(found)] = loader_for(found)
        loader = self._val_loaders[id(found)]
        metrics = [module for module in self.model.modules() if isinstance(module, Metric)]
        for metric in metrics:
            metric.reset()
        num_steps = checked_steps(None, loader)
        executor = DataExecutor(loader, num_steps=num_steps, activation_steps=num_steps)
        with closing(iter(executor)) as batches:
            for batch in batches:
                loss = self._evaluation(batch)
        losses = [result.scalar(loss.position) for result in executor.results]
        results = {VAL_LOSS: sum(losses) / len(losses)}
        results |= {metric.name: float(metric) for metric in metrics}
        log.info("Evaluation: %s", ", ".join(f"{name} {x:.5g}" for name, x in results.items()))
        self._call("on_evaluation", results)
        return results

    def save_checkpoint(self, path: Path | str) -> None:
        """Write weights, states of the optimizer and the step to a file."""
        optimizer = self._taken.optimizer.state_dict()
        step = {"global_step": self.backend.global_step}
        save({"model": self._compiled.state_dict(), "optimizer": optimizer, **step}, path)
        self._call("on_checkpoint", Path(path))

    def load_checkpoint(self, path: Path | str) -> None:
        """Go on from a checkpoint of this model and optimizer; before the first step.

        Schedules go on at its step, as if they had begun with the training.

        Raises:
            CheckpointError: The checkpoint is damaged, or one of another model.
            ProgramOrderError: A step has run.
        """
        self._check_has_not_begun("a checkpoint is loaded")
        states = ("model", "optimizer", "global_step")
        self.backend.restore(Path(path), states)
        for schedule in self._schedules:
            schedule.note_done(self.backend.global_step)

    def simulate(self, batch: Any, num_csx: int | Sequence[int] = 1, **options: Any) -> Any:
        """Predict the step of this training on each number of systems (``cstorch.simulate``).

        Before the first step or after ``shutdown``. The machine is that of the trainer; moving
        averages are not counted.

        Args:
            batch: A global batch.
            num_csx: Numbers of systems; the largest is reported in detail.
            options: Further ones of ``cstorch.simulate``.

        Raises:
            ProgramOrderError: A step has run, and the trainer was not shut down.
            ConfigError: The batch does not fit the model, or the machine.
        """
        is_running = existing_backend() is self.backend
        if is_running:
            self._check_has_not_begun("a trainer simulates")
            self.shutdown()
        machine = self.config.for_cluster().cluster
        try:
            return simulate(
                self.model,
                batch,
                num_csx,
                loss_of=lambda model, batch: loss_of(model, self._loss_fn, batch),
                **{"cluster": machine, "optimizer": self._taken.like(self.model), **options},
            )
        finally:
            if is_running:
                self._open()

    @property
    def ema(self) -> nn.Module:
        """A copy of the model with the moving averages of its weights, as they are now.

        Raises:
            ConfigError: ``ema_decay`` is not set.
        """
        if not isinstance(self._compiled, WithAverages):
            raise ConfigError(
                "a trainer must keep averages to have them",
                code="missing-key",
                where="CSConfig.ema_decay",
                value=None,
                remedy="CSConfig(ema_decay=0.999)",
            )
        return self._compiled.read()

    def shutdown(self) -> None:
        """Fetch the weights into the model and end the cluster. Idempotent.

        Raises:
            WeightsLostError: They could not be read.
        """
        self.backend.end_idle()

    def _open(self) -> None:
        """Make the backend that trains the model."""
        device = self.config.target_device.upper()
        self.backend = replace_backend(
            device if device in ("CPU", "GPU") else "CSX",
            cluster_config=self.config.for_cluster(),
            seed=self.config.seed,
        )
        self._compiled = compile(self._to_compile(), self.backend)
        steps = Steps(
            self._compiled,
            self._loss_fn,
            self._taken.optimizer,
            self._schedules,
            self.config,
            self._scaler,
        )
        self._step, self._evaluation = trace(steps.train), trace(steps.evaluate)

    def _to_compile(self) -> nn.Module:
        """Return the model, beside its averages if they are asked for."""
        decay = self.config.ema_decay
        return self.model if decay is None else WithAverages(self.model, decay)

    def _referee(self, model: nn.Module, check: int) -> Referee | None:
        """Return what compares the first steps with plain PyTorch, if that is asked for."""
        witness = current_witness()
        if not check and witness is None:
            return None
        if self.config.ema_decay is not None:
            raise ConfigError(
                "a training with averages cannot be checked",
                code="averages-not-checked",
                where="CSConfig.ema_decay",
                value=self.config.ema_decay,
                rule="the plain loop beside it has none",
                remedy="check it without ema_decay, which changes no weight of the model",
            )
        from cstorch.referee.plain_loop import Training  # noqa: PLC0415  (slow)
        from cstorch.referee.referee import Referee  # noqa: PLC0415

        training = Training(model, self.optimizer, self._loss_fn, loss_of)
        return Referee(training, check if witness is None else witness.steps)

    def _train(self, loader: Any, plan: FitPlan, part: range, losses: list[float]) -> None:
        """Run the steps between two evaluations; add the losses that are told."""
        executor = DataExecutor(
            loader,
            len(part),
            checkpoint_steps=[step - part.start + 1 for step in part if plan.is_saved(step)],
            activation_steps=[step - part.start + 1 for step in part if plan.is_logged(step)],
        )
        if self.callbacks:
            executor.is_ending = lambda: self.should_stop

        @step_closure
        def note(loss: torch.Tensor, step: int) -> None:
            if plan.is_logged(step):
                losses.append(loss.item())
                self._call("on_step", plan.done + step, losses[-1])
                self._take_changes()

        @checkpoint_closure
        def write(step: int) -> None:
            if plan.is_saved(step):
                folder = self.config.model_dir
                self.save_checkpoint(folder / f"checkpoint_{plan.done + step}.mdl")

        with closing(iter(executor)) as batches:  # also where a traceback keeps this frame
            for step, batch in enumerate(batches, part.start):
                loss = self._step(batch)
                if executor.is_initial_step:
                    self._taken.check(self._trained())
                note(loss, step)
                write(step)
                if self.referee is not None:
                    self.referee.note(loss, self._step, executor)
                if self.should_stop:
                    break

    def _step_by_metric(self, results: Mapping[str, float]) -> None:
        """Step the schedulers that follow the loss of evaluations."""
        for scheduler in filter(_reads_metric, self._schedulers):
            scheduler.step(results[VAL_LOSS])
            self._taken.take(self.optimizer)

    def _take_changes(self) -> None:
        """Take what callbacks have set in the groups of the optimizer, from the next step on."""
        if (found := _settings_of(self.optimizer)) != self._settings:
            self._settings = found
            self._taken.take(self.optimizer)

    def _trained(self) -> set[torch.Tensor]:
        """Return the parameters that a step updates."""
        names = self.backend.session.trained
        return {tensor for name, tensor in self._compiled.named_parameters() if name in names}

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)

    def _check_is_running(self) -> None:
        if existing_backend() is not self.backend:
            raise ProgramOrderError(
                "a trainer cannot train after its end",
                code="trainer-ended",
                rule="shutdown, a fit that fails on the cluster, or another Trainer ends it",
                remedy="make a Trainer of the model again: it has its trained weights",
            )

    def _check_has_not_begun(self, what: str) -> None:
        self._check_is_running()
        if self.backend.running_cluster is not None or self.backend.global_step:
            raise ProgramOrderError(
                f"{what} after a step has run",
                code="trainer-has-begun",
                rule="the cluster has the state of this training",
                remedy="do it before fit and validate, or after shutdown with a new Trainer",
            )


def _several(given: Any) -> tuple[Any, ...]:
    """Return the schedulers of an argument that may be one or a sequence."""
    return tuple(given) if isinstance(given, Sequence) else (given,)


def _reads_metric(scheduler: Any) -> bool:
    """Return whether a scheduler is stepped with a metric."""
    return isinstance(scheduler, ReduceLROnPlateau)


def _settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the hyper-parameters of the groups of an optimizer, as they are now."""
    return [{**group, "params": list(map(id, group["params"]))} for group in optimizer.param_groups]
