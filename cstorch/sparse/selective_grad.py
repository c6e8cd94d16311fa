"""Selective gradients: some elements of a parameter are trained, the others keep their values.

    model.apply(SelectiveGrad("fc*.weight"))

Names and defaults are the vendor's (cerebras_pytorch 2.10, ``nn.SelectiveGrad``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

from cstorch.sparse.filters import FilterCallable, make_param_filter
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.optimizer import ParamGroup

InitFunction = Callable[[torch.Tensor], torch.Tensor]
"""Returns which elements of a parameter are trained."""

_THRESHOLD = 2.25
"""Standard deviations of a channel's magnitudes that an outlier has at least."""

_OTHER_RULES = frozenset({"adafactor", "asgd", "lamb", "muon"})
"""Optimizers that change an element whose gradient is zero, or by the norm of all elements."""

_SELECTED = WeakIdKeyDictionary()
"""The hooks of the parameters of which some elements are trained."""


def outlier(parameter: torch.Tensor) -> torch.Tensor:
    """Return which elements are far larger than the others of their channel."""
    magnitude = parameter.abs()
    return magnitude >= _THRESHOLD * magnitude.std(dim=0, keepdim=True)


_INIT_METHODS = {"outlier": outlier}


class SelectiveGrad:
    """Train those elements of parameters that a method selects when it is applied to a model.

    Args:
        param_filter: Globs of the names of the parameters, or functions of name and parameter.
        init_method: The name of a method, or a function of a parameter.

    Raises:
        ConfigError: There is no such method.
    """

    def __init__(
        self,
        param_filter: str | FilterCallable | Iterable[str | FilterCallable],
        init_method: str | InitFunction = "outlier",
    ) -> None:
        self._selects = make_param_filter(param_filter)
        method = init_method if callable(init_method) else _INIT_METHODS.get(init_method)
        if method is None:
            raise ConfigError(
                "init_method must be a known method or a function",
                code="init-method-unknown",
                where="SelectiveGrad",
                value=init_method,
                rule=f"one of {', '.join(_INIT_METHODS)}",
                remedy=did_you_mean(str(init_method), _INIT_METHODS),
            )
        self._method = method
        self._hooks: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.names: set[str] = set()
        """The parameters that were selected, of the last module."""

    def __call__(self, module: nn.Module) -> None:
        """Select among the parameters of a module: ``model.apply``, which ends with the model."""
        self.names.clear()
        for name, parameter in module.named_parameters():
            hook: RemovableHandle | None = self._hooks.pop(parameter, None)
            if hook is not None:  # by its name in a module of the model
                hook.remove()
                _SELECTED.pop(parameter, None)
            is_free = parameter.requires_grad and parameter not in _SELECTED
            if is_free and self._selects(name, parameter):
                is_trained = self._method(parameter.detach())
                hook = parameter.register_hook(partial(_selected, is_trained))
                self._hooks[parameter] = _SELECTED[parameter] = hook
                self.names.add(name)


def _selected(is_trained: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return torch.where(is_trained, gradient, torch.zeros_like(gradient))


def refuse_other_changes(
    rule: str, groups: Iterable[Mapping[str, Any]], specs: Iterable[ParamGroup]
) -> None:
    """Refuse an update that changes elements which are not selected.

    Args:
        rule: The rule of the optimizer.
        groups: Its parameter groups.
        specs: The same groups, as MemoryX gets them.

    Raises:
        ConfigError: The rule does so, or there is weight decay.
    """
    for group, spec in zip(groups, specs, strict=True):
        decays = spec.hyper.get("weight_decay") or "weight_decay" in spec.schedules
        is_other = rule.lower() in _OTHER_RULES
        if (decays or is_other) and any(p in _SELECTED for p in group["params"]):
            raise ConfigError(
                "the optimizer would change elements whose gradients are not selected",
                code="selective-grad-with-decay",
                where="SelectiveGrad",
                value=rule if is_other else "weight_decay",
                rule=f"no weight decay, and none of {', '.join(sorted(_OTHER_RULES))}",
                remedy="another optimizer" if is_other else "weight_decay: 0",
            )
