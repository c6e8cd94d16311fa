"""From a batch to the loss of a model: which parts of the batch it takes, and what it returns.

A batch is a tensor, a tuple, a mapping, or an object with tensors as attributes. A model takes it
whole, its parts in their order, or its parts by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import torch
from torch import nn

from appliance.input.batches import attributes_of
from cstorch.model_output import loss_in
from waferstream.core.errors import ConfigError

TARGETS = ("labels", "label", "targets", "target", "y")
"""Keys of a batch that ``loss_fn`` compares the model's output with."""


def loss_of(model: nn.Module, loss_fn: Any, batch: Any) -> torch.Tensor:
    """Return the loss of a model on a batch.

    Args:
        model: The model.
        loss_fn: Called with its output and the target of the batch; None where it returns the loss.
        batch: The batch.

    Raises:
        ConfigError: The model does not take the batch, or the loss is no scalar.
    """
    loss_fn = loss_fn or _loss_of_model(model, batch)
    arguments, named, target = _split(model, batch, has_loss=loss_fn is not None)
    if error := _misfit(model, arguments, named):
        raise _no_fit(model, error, _remedy(model, batch, has_loss=loss_fn is not None)) from error
    try:
        output = model(*arguments, **named)
    except (TypeError, AttributeError) as error:
        if isinstance(batch, Mapping) and arguments and type(batch).__name__ in str(error):
            raise _no_fit(model, error, _rename(model, batch)) from error
        raise
    if loss_fn is not None:
        _check_output(output)
        return _checked(loss_fn(output, target), "the result of loss_fn")
    return _checked(loss_in(output), "the model's output")


def _loss_of_model(model: nn.Module, batch: Any) -> Callable[[Any, Any], torch.Tensor] | None:
    """Return the loss of a CerebrasModel, unless it takes a batch with its target."""
    loss: Callable[[Any, Any], torch.Tensor] | None = getattr(model, "default_loss", None)
    if loss is None:
        return None
    arguments, named, _ = _split(model, batch, has_loss=False)
    return loss if _misfit(model, arguments, named) else None


def _split(
    model: nn.Module, batch: Any, *, has_loss: bool
) -> tuple[list[Any], dict[str, Any], Any]:
    """Return the positional and named arguments of a model, and the target of its loss.

    A mapping or an object has the arguments by name, unless it is itself the one argument of the
    model. A tuple is where that is called ``batch``.
    """
    if isinstance(batch, tuple | list) and batch:
        arguments = list(batch)
        if has_loss:
            return arguments[:-1], {}, arguments[-1]
        return ([batch] if _names_of_needed(model) == ["batch"] else arguments), {}, None
    if isinstance(batch, torch.Tensor) and not has_loss:
        return [batch], {}, None
    named = {} if isinstance(batch, torch.Tensor) else _named_parts(batch)
    if not named:
        raise _no_batch(batch)
    target = named.pop(_target_of(named)) if has_loss else None
    return ([batch], {}, target) if takes_whole(model, named) else ([], named, target)


def _named_parts(batch: Any) -> dict[str, Any]:
    """Return the entries of a mapping, or the attributes of an object that has tensors."""
    if isinstance(batch, Mapping):
        return dict(batch)
    named = attributes_of(batch)
    return named if any(isinstance(each, torch.Tensor) for each in named.values()) else {}


def _no_batch(batch: Any) -> ConfigError:
    is_tensor = isinstance(batch, torch.Tensor)
    return ConfigError(
        "a batch must be a tuple, a mapping or an object with tensors",
        code="batch-not-tuple-or-dict",
        where="cstorch.Trainer",
        value="Tensor" if is_tensor else type(batch).__name__,
        rule="a tensor alone has no target for loss_fn"
        if is_tensor
        else "the tensors are entries or attributes of the batch",
        remedy="yield (input, target), or a dict of the model's arguments",
    )


def takes_whole(model: nn.Module, named: Mapping[str, Any]) -> bool:
    """Return whether a model needs a single argument, which has none of the names in a batch."""
    needed = _names_of_needed(model)
    return len(needed) == 1 and needed[0] not in named


def _names_of_needed(model: nn.Module) -> list[str]:
    """Return the names of the arguments that a model cannot do without."""
    parameters = signature(model.forward).parameters.values()
    return [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]


def _target_of(batch: Mapping[str, Any]) -> str:
    """Return the key of the target in a batch."""
    found = [key for key in TARGETS if key in batch]
    if len(found) != 1:
        raise ConfigError(
            "a batch for loss_fn must have one target",
            code="target-not-found",
            where="cstorch.Trainer",
            value=", ".join(batch),
            rule=f"one of the keys {', '.join(TARGETS)}",
            remedy="rename the entry that loss_fn compares the output with",
        )
    return found[0]


def _no_fit(model: nn.Module, error: Exception, remedy: str | None) -> ConfigError:
    """Return the error for a model that does not take a batch, or its elements."""
    return ConfigError(
        "the model must take the elements of a batch as its arguments",
        code="batch-does-not-fit-model",
        where="cstorch.Trainer",
        value=f"{type(model).__name__}.forward: {error}",
        remedy=remedy,
    )


def _remedy(model: nn.Module, batch: Any, *, has_loss: bool) -> str | None:
    """Return what helps a model that misses an argument, or gets one too many."""
    if not has_loss:
        return "pass loss_fn=..., which takes the target off the batch"
    arguments, named, _ = _split(model, batch, has_loss=False)
    if _misfit(model, arguments, named) is None:
        return "leave out loss_fn: forward takes the target, and returns the loss"
    return _rename(model, batch) if isinstance(batch, Mapping) else None


def _rename(model: nn.Module, batch: Mapping[str, Any]) -> str:
    """Return the remedy for other names of arguments than a batch has."""
    keys, needed = ", ".join(map(str, batch)), ", ".join(_names_of_needed(model))
    return f"give arguments and entries the same names: forward has {needed}, the batch {keys}"


def _check_output(output: Any) -> None:
    """Refuse the output of a model that is a loss where ``loss_fn`` is to compute it."""
    if isinstance(output, torch.Tensor) and output.ndim == 0:
        raise ConfigError(
            "the loss must be computed once",
            code="loss-of-loss",
            where="cstorch.Trainer",
            value="forward returns a scalar, and loss_fn is given",
            rule="loss_fn takes the output of the model, such as logits",
            remedy="leave out loss_fn, or let forward return the output",
        )


def _misfit(model: nn.Module, arguments: list[Any], named: dict[str, Any]) -> TypeError | None:
    """Return why a model cannot be called with arguments, None if it can."""
    try:
        signature(model.forward).bind(*arguments, **named)
    except TypeError as error:
        return error
    return None


def _checked(loss: Any, what: str) -> torch.Tensor:
    """Return the loss; ConfigError unless it is a scalar, for micro-batches of any size."""
    if isinstance(loss, torch.Tensor) and loss.ndim == 0:
        return loss
    shape = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
    raise ConfigError(
        f"{what} must be a scalar loss",
        code="loss-not-scalar",
        where="cstorch.Trainer",
        value=shape,
        remedy="pass loss_fn=..., a function of output and target that returns a scalar",
    )
