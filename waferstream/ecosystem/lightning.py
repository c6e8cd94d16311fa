"""``pytorch_lightning.Trainer`` on the cluster, by a strategy.

trainer = pytorch_lightning.Trainer(strategy=WaferStreamStrategy(num_csx=4), max_epochs=1)
trainer.fit(model, loader)

The name ``waferstream`` stands for a strategy with default settings once this module is imported.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.strategies import SingleDeviceStrategy, StrategyRegistry
from torchmetrics import Metric

from cstorch.handover import Handover, hand_over
from waferstream.core.errors import ConfigError


class WaferStreamStrategy(SingleDeviceStrategy):  # type: ignore[misc]  # checked without it
    """Trains a LightningModule on a cluster: its ``training_step`` is the step.

    Args:
        settings: Fields of ``cstorch.CSConfig``, such as ``num_csx`` and ``cluster``.
    """

    strategy_name = "waferstream"

    def __init__(self, **settings: Any) -> None:
        super().__init__("cpu")
        self._settings = settings
        self._handover: Handover | None = None
        self._logs: LogCalls | None = None

    def setup_optimizers(self, trainer: Any) -> None:
        """Hand over the module with its optimizer."""
        super().setup_optimizers(trainer)
        module = self.lightning_module
        assert module is not None, "a strategy is set up with its module"
        _check(module, trainer)
        self._logs = LogCalls(module)
        step = self._logs.around(module.training_step)
        module.training_step = step
        self._handover = hand_over(
            module,
            self.optimizers[0],
            function="training_step",
            arguments=functools.partial(_without_unread, step),
            recording=TrainerAside(module).recording,
            **self._settings,
        )
        # Lightning looks through one layer to see whether a step takes batch_idx
        vars(module)["training_step"].__wrapped__ = inspect.unwrap(step)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        assert self._logs is not None, "it was set up for training"
        output, self._logs.deferred = super().training_step(*args, **kwargs)
        return output

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        assert self._logs is not None, "it was set up for training"
        output = super().optimizer_step(*args, **kwargs)
        self._logs.repeat()
        return output

    def teardown(self) -> None:
        if self._handover is not None:
            self._handover.end()
        super().teardown()


class LogCalls:
    """The calls of ``self.log`` in a training step, repeated with values after the step.

    Args:
        module: The module that logs.
    """

    def __init__(self, module: LightningModule) -> None:
        self.deferred: list[Any] = []
        """The values that the last step has logged."""
        self._module = module
        self._calls: list[dict[str, Any]] = []

    def around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step that returns what it has logged beside its output."""
        module, calls = self._module, self._calls

        @functools.wraps(step)
        def logging_step(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
            values: list[Any] = []
            calls.clear()
            with _replaced_log(module, calls, values):
                return step(*args, **kwargs), values

        return logging_step

    def repeat(self) -> None:
        """Log the values of the step, which has run."""
        hook, self._module._current_fx_name = self._module._current_fx_name, "training_step"
        try:
            for call, value in zip(self._calls, self.deferred, strict=True):
                plain = value.clone() if isinstance(value, torch.Tensor) else value
                self._module.log(value=plain, **call)
        finally:
            self._module._current_fx_name = hook
            self.deferred = []


@contextmanager
def _replaced_log(
    module: LightningModule, calls: list[dict[str, Any]], values: list[Any]
) -> Iterator[None]:
    """Note calls of ``module.log`` and its values, instead of logging."""

    def log(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(value, Metric):
            raise _metric_in_step(name)
        given = inspect.signature(LightningModule.log).bind(module, name, value, *args, **kwargs)
        calls.append({k: v for k, v in given.arguments.items() if k not in ("self", "value")})
        values.append(value)

    vars(module)["log"] = log
    try:
        yield
    finally:
        del vars(module)["log"]


class TrainerAside:
    """Stands for the trainer of a module while its step is recorded, until the step reads it.

    What a trainer counts changes in every step: a step that reads it is recorded every time.

    Args:
        module: The module.
    """

    def __init__(self, module: LightningModule) -> None:
        self._places = vars(module)
        self._trainer = self._places["_trainer"]
        self._is_read = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Put the trainer aside inside the block."""
        if not self._is_read:
            self._places["_trainer"] = self
        try:
            yield
        finally:
            self._places["_trainer"] = self._trainer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # protocols of copy, inspect and the like, which read nothing
            raise AttributeError(name)
        self._is_read = True
        self._places["_trainer"] = self._trainer
        return getattr(self._trainer, name)


def _check(module: LightningModule, trainer: Any) -> None:
    """Raise ConfigError for a module or a trainer whose steps are no steps of the cluster."""
    if not module.automatic_optimization:
        raise ConfigError(
            "a module must leave the optimization to Lightning",
            code="manual-optimization",
            where=f"{type(module).__name__}.automatic_optimization",
            value=False,
            remedy="return the loss from training_step, or train with cstorch.hand_over in a loop",
        )
    if trainer.accumulate_grad_batches != 1:
        raise ConfigError(
            "gradients must not be accumulated by the trainer",
            code="trainer-accumulates",
            where="pytorch_lightning.Trainer.accumulate_grad_batches",
            value=trainer.accumulate_grad_batches,
            rule="the cluster cuts a batch of any size in micro-batches, and adds them up",
            remedy=f"a batch {trainer.accumulate_grad_batches} times as large, and 1 here",
        )


def _without_unread(step: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of a step with None for numbers that its code does not read.

    ``batch_idx`` would otherwise make each step another one.
    """
    code = inspect.unwrap(step).__code__
    read = {x.argval for x in dis.get_instructions(code) if x.opname.startswith("LOAD_")}
    bound = inspect.signature(step).bind(*args, **kwargs)
    for name, value in bound.arguments.items():
        if isinstance(value, int) and name not in read and name not in code.co_cellvars:
            bound.arguments[name] = None
    return bound.args, bound.kwargs


def _metric_in_step(name: str) -> ConfigError:
    return ConfigError(
        "a metric of torchmetrics cannot be updated in a training step of the cluster",
        code="metric-in-training-step",
        where="training_step",
        value=f"log({name!r})",
        rule="a training step is recorded; its tensors have values after it",
        remedy="log a tensor that is computed in the step, or use the metric in validation_step",
    )


if WaferStreamStrategy.strategy_name not in StrategyRegistry:
    StrategyRegistry.register(WaferStreamStrategy.strategy_name, WaferStreamStrategy)
