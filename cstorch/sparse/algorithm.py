"""Algorithms as a user constructs them; the masks, and their changes, are those of MemoryX.

Names, arguments and defaults are the vendor's (cerebras_pytorch 2.10, ``sparse``).
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar, Self, get_args
from weakref import WeakSet

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from cstorch.hooks import registered
from cstorch.sparse.levels import Given, level_of, tabulated
from cstorch.sparse.masks import MaskView, words_of
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.sparsity.spec import Algorithm, InitMethod, WeightSparsity

InitFunction = Callable[..., torch.Tensor]
Hook = Callable[["SparsityAlgorithm", str, torch.Tensor], Any]
"""Called with an algorithm, the names of weights as a glob or one name, and a share of zeros."""

_INIT_METHODS = tuple(name for name in get_args(InitMethod) if name != "given")


_APPLIED: WeakSet[SparsityAlgorithm] = WeakSet()
"""Algorithms that were applied to a model."""


def refuse_unapplied(applied: SparsityAlgorithm | None, parameters: Sequence[torch.Tensor]) -> None:
    """Refuse to update parameters whose algorithm was applied to their model only.

    Args:
        applied: The algorithm that was applied to the optimizer.
        parameters: Those of the optimizer.

    Raises:
        ConfigError: Another algorithm was applied to the model of the parameters.
    """
    for algorithm in _APPLIED:
        if algorithm is not applied and not algorithm._names.keys().isdisjoint(parameters):
            raise ConfigError(
                "sparsity must be applied to the optimizer, too",
                code="sparsity-without-optimizer",
                where=algorithm._name,
                remedy="optimizer.apply(sparsity) after model.apply(sparsity)",
            )


class SparsityAlgorithm:
    """Base class of all algorithms: applied to a model, then to its optimizer.

    An algorithm by itself makes every parameter of the model sparse; a ``Group`` selects some.

    Args:
        sparsity: The share of zeros.
        init_method: How first masks are made: the name of a method, or a function of a parameter
            and its share of zeros.

    Raises:
        ConfigError: An argument is wrong, or the class is not one that MemoryX has a rule for.
    """

    algorithm: ClassVar[Algorithm | None] = None

    def __init__(self, sparsity: Given = None, init_method: str | InitFunction = "random") -> None:
        self._refuse_unknown_rule()
        self._level = level_of(sparsity, f"{self._name}, sparsity")
        self._init = init_method
        self._names: dict[torch.Tensor, str] = {}
        self._target_hooks: OrderedDict[int, Hook] = OrderedDict()
        self._computed_hooks: OrderedDict[int, Hook] = OrderedDict()
        self.view = MaskView()
        """The masks of the weights, where MemoryX holds them."""
        if not callable(init_method) and init_method not in _INIT_METHODS:
            raise ConfigError(
                "init_method must be a known method or a function",
                code="init-method-unknown",
                where=self._name,
                value=init_method,
                rule=f"one of {', '.join(_INIT_METHODS)}",
                remedy=did_you_mean(str(init_method), _INIT_METHODS),
            )
        if self._level is None and init_method != "from_zeros" and not callable(init_method):
            raise ConfigError(
                "sparsity must be given",
                code="missing-key",
                where=self._name,
                rule="only first masks from zeros, or from a function, have a share of their own",
            )

    @property
    def _name(self) -> str:
        return f"cstorch.sparse.{type(self).__name__}"

    def __call__(self, module: nn.Module) -> None:
        """Note the parameters of a module: ``model.apply(sparsity)``, which ends with the model."""
        for name, parameter in module.named_parameters():
            self._names[parameter] = name
        _APPLIED.add(self)

    def unapplied(self) -> Self:
        """Return the same algorithm, applied to no model."""
        other = copy.copy(self)
        other._names, other.view = {}, MaskView()
        return other

    def apply(self, target: Any) -> None:
        """Apply the algorithm to a model, or to its optimizer."""
        target.apply(self)

    def assigned(self) -> dict[torch.Tensor, tuple[str, SparsityAlgorithm]]:
        """Return the parameters that become sparse, with their names and algorithms.

        Raises:
            ConfigError: The algorithm was applied to no model.
        """
        if not self._names:
            raise ConfigError(
                "sparsity must be applied to the model first",
                code="sparsity-without-model",
                where=f"{self._name}.apply",
                remedy="model.apply(sparsity), then optimizer.apply(sparsity)",
            )
        return {parameter: (name, self) for parameter, name in self._names.items()}

    def spec(
        self,
        name: str,
        parameter: torch.Tensor,  # noqa: ARG002  (some algorithms depend on its shape)
        num_updates: int,
        seed: int,
    ) -> WeightSparsity:
        """Return the sparsity of one parameter as data, for so many updates."""
        assert self.algorithm is not None, "refused when it was made"
        return WeightSparsity(
            name=name,
            algorithm=self.algorithm,
            level=tabulated(self._level, num_updates),
            init="given" if callable(self._init) else self._init,  # type: ignore[arg-type]
            seed=seed,
        )

    def first_mask(self, name: str, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return the first mask as words, where a function of the user's makes it.

        Raises:
            ConfigError: The function gives no mask of the parameter's shape, or there are no values
                that it could read.
        """
        if not callable(self._init):
            return None
        if parameter.is_meta:
            raise ConfigError(
                "a function that makes masks needs the values of its weight",
                code="mask-without-values",
                where=name,
                rule="a simulation has none",
                remedy="simulate with the name of a method as init_method",
            )
        level = tabulated(self._level, 0)
        share = torch.tensor(0.0 if level is None else level.at(0))
        with torch.no_grad():
            mask = self._init(parameter.detach().clone(), share)
        return words_of(mask, tuple(parameter.shape), name)

    def register_target_sparsity_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(sparsity, names, target)`` with the share of zeros that is asked for.

        It is called after every activation step.
        """
        return registered(self._target_hooks, hook)

    def register_computed_sparsity_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(sparsity, name, actual)`` with the share of zeros of each weight.

        It is called after every activation step, for which the masks are fetched.
        """
        return registered(self._computed_hooks, hook)

    def report(self, update: int) -> None:
        """Call the hooks after an update."""
        own: dict[SparsityAlgorithm, list[tuple[torch.Tensor, str]]] = {}
        for parameter, (name, algorithm) in self.assigned().items():
            own.setdefault(algorithm, []).append((parameter, name))
        for algorithm, weights in own.items():
            self._report_target(algorithm, weights, update)
            for hook in algorithm._hooks_with(self, "_computed_hooks"):
                for parameter, name in weights:
                    share = 1.0 - self.view.mask(parameter).float().mean()
                    hook(algorithm, name, share)

    def _report_target(
        self,
        algorithm: SparsityAlgorithm,
        weights: Sequence[tuple[torch.Tensor, str]],
        update: int,
    ) -> None:
        """Call the hooks with the share of zeros that an algorithm of this group asks for."""
        parameter, name = weights[0]
        if hooks := algorithm._hooks_with(self, "_target_hooks"):
            target = algorithm.spec(name, parameter, update, 0).target(update)
            names = f"{_common_prefix([name for _, name in weights])}*"
            for hook in hooks if target is not None else ():
                hook(algorithm, names, torch.tensor(target))

    def _hooks_with(self, whole: SparsityAlgorithm, kind: str) -> list[Hook]:
        """Return the hooks of this algorithm, and of the group that it is part of."""
        owners = (self,) if whole is self else (self, whole)
        return [hook for owner in owners for hook in getattr(owner, kind).values()]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the mask of every sparse parameter by its name; they are fetched from MemoryX."""
        return {name: self.view.mask(p) for p, (name, _) in self.assigned().items()}

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Take masks by the names of their parameters; they are sent before the next step.

        Raises:
            ConfigError: A mask is missing, of no sparse parameter, or of another shape.
        """
        names = {name: parameter for parameter, (name, _) in self.assigned().items()}
        if different := sorted(names.keys() ^ state_dict.keys()):
            raise ConfigError(
                "the masks must be those of the sparse parameters",
                code="masks-mismatch",
                where=f"{self._name}.load_state_dict",
                value=f"missing or unexpected: {', '.join(different)}",
            )
        for name, mask in state_dict.items():
            parameter = names[name]
            self.view.put(parameter, words_of(mask, tuple(parameter.shape), name))

    def _refuse_unknown_rule(self) -> None:
        known = next((k for k in type(self).__mro__ if "algorithm" in vars(k)), None)
        if self.algorithm is None or (
            known is not type(self) and "update_mask" in vars(type(self))
        ):
            raise ConfigError(
                "MemoryX must have a rule for the algorithm",
                code="sparsity-algorithm-unknown",
                where=self._name,
                value=type(self).__name__,
                rule="Static, GMP, SET and RigL have one",
                remedy="use one of them, with schedules of its own",
            )


class Static(SparsityAlgorithm):
    """Masks that never change."""

    algorithm: ClassVar[Algorithm | None] = "static"


def _common_prefix(names: Sequence[str]) -> str:
    """Return the characters with which all names begin."""
    first, last = min(names), max(names)
    pairs = zip(first, last, strict=False)
    return first[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))]
