"""Evaluation of a model on the batches of loaders: mean loss, and the metrics of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.checkpoints.folder import CheckpointFolder
from cstorch.metrics import Metric
from cstorch.utils.data import DataExecutor, DataLoader
from waferstream.config.sections.init import DataLoaderConfig
from waferstream.core.errors import ConfigError
from waferstream.training.observers.observer import EvaluationLog, Observer
from waferstream.training.run import Run
from waferstream.training.run_plan import steps_of_epoch
from waferstream.training.setup.backend import scoped_flags
from waferstream.training.setup.loaders import make_loader
from waferstream.training.setup.steps import Step, evaluation_step


class Evaluator:
    """Evaluations of one run.

    Args:
        run: The run.
        observers: Receivers of results.
    """

    def __init__(self, run: Run, observers: Sequence[Observer]) -> None:
        self._run = run
        self._init = run.init
        self._observers = observers
        self._step: Step = evaluation_step(run.init, run.model)

    def loaders(self, configs: Sequence[DataLoaderConfig], where: str) -> Sequence[DataLoader]:
        """Build loaders once: a new loader would be a new program."""
        return [
            make_loader(self._init, config, "validate", f"{where}[{index}]")
            for index, config in enumerate(configs)
        ]

    def evaluate_all(
        self, loaders: Sequence[DataLoader], is_ending: Callable[[], bool] | None = None
    ) -> None:
        """Evaluate the model as it is now on every loader, until ``is_ending`` says otherwise."""
        with scoped_flags(self._init, "validate"):
            for loader in loaders:
                try:
                    self._evaluate(loader, is_ending)
                except Exception as error:
                    self._run.callbacks.call("on_validate_exception", self._run.trainer, error)
                    raise

    def _evaluate(self, loader: DataLoader, is_ending: Callable[[], bool] | None) -> None:
        steps = self._init.loop.eval_steps or steps_of_epoch(length_of(loader), "eval_steps")
        executor = DataExecutor(loader, num_steps=steps, activation_steps=steps)
        executor.is_ending = is_ending
        about = self._run.about
        metrics = [module for module in self._run.model.modules() if isinstance(module, Metric)]
        for metric in metrics:
            metric.reset()
        self._run.callbacks.call("on_validate_start", *about, loader, self._init.loop)
        loss = None
        for index, batch in enumerate(executor):
            if is_ending is not None and is_ending():
                return
            self._run.callbacks.call("on_validate_batch_start", *about, batch, index)
            loss = self._step(batch)
            outputs = {"loss": loss}
            self._run.callbacks.call("on_validate_batch_end", *about, outputs, batch, index)
        if loss is None or not self._run.session.settings.is_e2e_execution:
            return
        losses = [result.scalar(loss.position) for result in executor.results]
        evaluation = self._log(executor, losses, {each.name: float(each) for each in metrics})
        for observer in self._observers:
            observer.evaluated(evaluation)
        self._run.callbacks.call("on_validate_end", *about, self._init.loop)

    def _log(
        self, executor: DataExecutor, losses: Sequence[float], metrics: Mapping[str, float]
    ) -> EvaluationLog:
        return EvaluationLog(
            step=self._run.session.global_step,
            batches=len(losses),
            loss=sum(losses) / len(losses),
            metrics=metrics,
            rate=executor.profiler.rate_tracker.global_rate,
        )


def length_of(loader: Any) -> int | None:
    """Return the batches of an epoch; None if the loader has no length."""
    try:
        return len(loader)
    except TypeError:
        return None


def checkpoints_to_evaluate(patterns: Sequence[Path], folder: CheckpointFolder) -> list[Path]:
    """Return the files that match paths or globs; without any, all checkpoints of a folder.

    Raises:
        ConfigError: A pattern matches no file, or the folder has no checkpoint.
    """
    if patterns:
        return [path for pattern in patterns for path in _matching(pattern)]
    paths = [folder.path / entry.file for entry in folder.entries()]
    if not paths:
        raise ConfigError(
            "model_dir must hold a checkpoint to evaluate",
            code="no-checkpoint",
            where=str(folder.path),
        )
    return paths


def _matching(pattern: Path) -> list[Path]:
    """Return the files that match a path or glob, sorted."""
    found = sorted(pattern.parent.glob(pattern.name))
    if not found:
        raise ConfigError(
            "ckpt_paths must match a checkpoint",
            code="no-checkpoint",
            where="validate_all.ckpt_paths",
            value=pattern,
        )
    return found
