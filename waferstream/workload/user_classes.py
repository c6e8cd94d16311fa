"""Models, losses and data loaders of the user's own, by import path, from params.yaml.

model:
  class: mypackage.module:Net      a class or a function that returns a module
  width: 64                        its keyword arguments
  loss: {class: torch.nn:CrossEntropyLoss}
train_dataloader:
  class: mypackage.data:make_loader
  batch_size: 32
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from cstorch.model_output import loss_in
from cstorch.trainer.batch import takes_whole
from waferstream.core.errors import ConfigError, WaferStreamError, did_you_mean
from waferstream.core.user_code import import_class

CLASS = "class"
"""The key of a section that names a class of the user's."""

_MISSING = "add it; for a value that a file cannot state, name a function that makes the object"

LOSS = "loss"
"""The key of a model section that describes its loss."""


def make(section: Mapping[str, Any], where: str) -> Any:
    """Call what a section names with the section's other keys as keyword arguments.

    Raises:
        ConfigError: The name cannot be imported, the keys do not fit its signature, or it raises
            an exception.
        OSError: It cannot read a file.
    """
    function = import_class(section[CLASS], f"{where}.{CLASS}")
    return call(function, _arguments(section), section[CLASS], where)


def call(function: Callable[..., Any], arguments: Mapping[str, Any], name: str, where: str) -> Any:
    """Call what a file names with keyword arguments of the file; raise as ``make`` does."""
    _check_arguments(function, arguments, name, where)
    try:
        return function(**arguments)
    except (WaferStreamError, OSError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{name} failed",
            code="class-failed",
            where=where,
            value=f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})",
            remedy="correct the keys of the section, or the code (--debug shows the whole trace)",
        ) from error


def checked_class(section: Mapping[str, Any], where: str) -> Callable[..., Any]:
    """Return the object that a section names, if the section's other keys fit its signature."""
    function = import_class(section[CLASS], f"{where}.{CLASS}")
    _check_arguments(function, _arguments(section), section[CLASS], where)
    return function


def _check_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any], name: str, where: str
) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        known = list(signature.parameters)
        wrong = [key for key in arguments if key not in known]
        raise ConfigError(
            f"the keys of the section must be arguments of {name}",
            code="class-arguments-mismatch",
            where=where,
            value=error,
            rule=f"{function.__name__}{signature}",
            remedy=did_you_mean(wrong[0], known) if wrong else _MISSING,
        ) from error


def _arguments(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of the class that a section names."""
    return {key: value for key, value in section.items() if key != CLASS}


def make_model(section: Mapping[str, Any], seed: int, where: str) -> nn.Module:
    """Build a user's model on torch's default device, with random numbers of ``seed``.

    The global random state is unchanged.

    Raises:
        ConfigError: The section is wrong, or no module results.
    """
    own = {key: value for key, value in section.items() if key != LOSS}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make(own, where)
    return _module(model, section[CLASS], where)


def make_loss(section: Mapping[str, Any], where: str) -> nn.Module | None:
    """Build the loss of a model section; None if the model returns its loss itself.

    Raises:
        ConfigError: The section is wrong, or the loss has parameters, which nothing would train.
    """
    loss_section = section.get(LOSS)
    if loss_section is None:
        return None
    loss = _module(make(loss_section, f"{where}.{LOSS}"), loss_section[CLASS], f"{where}.{LOSS}")
    if any(True for _ in loss.parameters()):
        raise ConfigError(
            "a loss must have no parameters",
            code="loss-with-parameters",
            where=f"{where}.{LOSS}",
            value=loss_section[CLASS],
            remedy="let the model compute it and return the scalar loss",
        )
    return loss


def _module(found: object, path: object, where: str) -> nn.Module:
    if not isinstance(found, nn.Module):
        raise ConfigError(
            f"{path!r} must give a torch.nn.Module",
            code="class-gives-no-module",
            where=where,
            value=type(found).__name__,
        )
    return found


def compute_loss(model: nn.Module, loss: Callable[..., Any] | None, batch: Any) -> torch.Tensor:
    """Return the scalar loss of a batch.

    Without ``loss`` the model gets the whole batch and returns its loss, or an output in which
    ``loss_in`` finds it. With it, the model gets the entries of a mapping that its ``forward``
    names, or all but the last one of a sequence; the loss gets its output and the rest.

    Raises:
        ConfigError: The model does not take the batch, the batch leaves no target for the loss, or
            no scalar results.
    """
    if loss is None:
        _check_takes(model, batch)
        result = loss_in(_call(model, batch))
    else:
        inputs, targets = _split(model, batch)
        result = loss(_call(model, inputs), *targets)
    if not isinstance(result, torch.Tensor) or result.ndim:
        shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise ConfigError(
            "the loss must be a scalar tensor",
            code="loss-not-scalar",
            where="trainer.init.model",
            value=shape,
            remedy=None if loss else _NAME_THE_LOSS,
        )
    return result


_NAME_THE_LOSS = "name the loss: model: {loss: {class: torch.nn:CrossEntropyLoss}}"


def _check_takes(model: nn.Module, batch: Any) -> None:
    """Refuse a batch that does not fit the signature of a model that returns its loss."""
    args = batch if isinstance(batch, tuple | list) else ()
    kwargs = batch if isinstance(batch, Mapping) and not _is_whole(model, batch) else {}
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*args, **kwargs) if args or kwargs else signature.bind(batch)
    except TypeError as error:
        raise ConfigError(
            "a model without a loss of its own must take the whole batch",
            code="batch-not-model-input",
            where="trainer.init.model",
            value=error,
            rule=f"forward{signature}",
            remedy=_NAME_THE_LOSS,
        ) from error


def _call(model: nn.Module, batch: Any) -> Any:
    """Call a model with the entries of a batch: by name, in order, or with the batch itself."""
    match batch:
        case Mapping() if not _is_whole(model, batch):
            return model(**batch)
        case tuple() | list():
            return model(*batch)
    return model(batch)


def _is_whole(model: nn.Module, batch: Mapping[str, Any]) -> bool:
    """Return whether a model takes several entries as one argument, which has another name."""
    return len(batch) > 1 and takes_whole(model, batch)


def _split(model: nn.Module, batch: Any) -> tuple[Any, list[Any]]:
    """Return the model's arguments of a batch, and the targets of the loss."""
    inputs: Any = None
    targets: list[Any] = []
    match batch:
        case Mapping():
            names = inspect.signature(model.forward).parameters
            inputs = {name: value for name, value in batch.items() if name in names}
            targets = [value for name, value in batch.items() if name not in names]
        case tuple() | list():
            inputs, targets = batch[:-1], list(batch[-1:])
    if not targets or not inputs:
        raise ConfigError(
            "a batch must have inputs of the model and a target of its loss",
            code="batch-without-target",
            where="trainer.init.model.loss",
            value=f"{', '.join(batch)}" if isinstance(batch, Mapping) else type(batch).__name__,
            rule="a tuple (inputs, target), or a mapping with one key that forward does not take",
        )
    return inputs, targets
