"""Base class of optimizer rules: hyper-parameters, state per parameter, update in place, cost.

A rule holds nothing itself. Weight servers own masters and state (flat fp32 buffers, of which the
tensors here are views) and pass both to ``update`` once per step.

Everything that depends on the optimizer follows from its rule: the classes of ``cstorch.optim``,
``trainer.init.optimizer`` of params.yaml, the state bytes and the emulated time of an update.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import Field

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.core.plugins import Plugins

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]
Hyper = Mapping[str, Any]
"""Hyper-parameters by name; always complete, as ``ParamGroup.at`` gives them."""

State = dict[str, "Tensor"]
"""The fp32 state tensors of one parameter by name."""

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]
"""The factor of a running average."""

Betas = tuple[Decay, Decay]
LearningRate = NonNegative | None
"""None where a scheduler, or the rule itself, gives it."""

STATE_BYTES_PER_ELEMENT = 4


class AdamArguments(Config):
    """Hyper-parameters of Adam, with which those of its relatives begin."""

    lr: LearningRate = 1e-3
    betas: Betas = (0.9, 0.999)
    eps: NonNegative = 1e-6
    weight_decay: NonNegative = 0.0


class Parameter(NamedTuple):
    """One parameter at its update: fp32 tensors on the CPU, the gradient shaped like the master."""

    master: Tensor
    gradient: Tensor
    state: State


class Rule(ABC):
    """An optimizer: how gradients change masters.

    Args:
        Arguments: Hyper-parameters in the order of the constructor, with ranges and defaults.
        flops_per_element: Additions, multiplications, divisions, roots and signs of one update,
            counted in the formulas of the rule with all options on. Factors that are the same for
            all elements are not counted.
        is_elementwise: Whether the update of an element depends on nothing but its own values, and
            every state has the shape of the parameter: then sparse parameters are updated packed.
        counts_updates: Whether torch's optimizer keeps the number of updates in its state.
        derived_states: States of torch's optimizer that follow from the number of updates, and that
            the rule therefore does not keep.
    """

    Arguments: ClassVar[type[Config]]
    flops_per_element: ClassVar[int]
    is_elementwise: ClassVar[bool] = False
    counts_updates: ClassVar[bool] = True
    derived_states: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """The name in ``cstorch.optim``, in params.yaml and in an OptimizerSpec."""
        return type(self).__name__

    @abstractmethod
    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        """Return names and shapes of the state kept for a parameter of shape ``shape``."""

    def initial_value(self, state: str, hyper: Hyper) -> float:  # noqa: ARG002
        """Return the value of every element of a state before the first update."""
        return 0.0

    def derived_value(self, state: str, hyper: Hyper, updates: int) -> float:
        """Return the value of one of ``derived_states`` after so many updates."""
        raise NotImplementedError(state, hyper, updates)

    def flops(self, shape: Shape, hyper: Hyper) -> int:  # noqa: ARG002
        """Return the operations of one update of a parameter of shape ``shape``."""
        return self.flops_per_element * prod(shape)

    @abstractmethod
    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        """Apply one update to masters and states in place; gradients are only read.

        ``step`` counts from 1 the updates that this state has seen, this one included. Parameters
        do not mix: the result for each is the same in any group and order.
        """

    def check(self, hyper: Hyper, where: str) -> None:  # noqa: B027  (most have none)
        """Raise ConfigError for hyper-parameters that contradict each other."""

    def needs_lr(self, hyper: Hyper) -> bool:  # noqa: ARG002
        """Return whether the rule needs a learning rate from its user."""
        return True


RULES: dict[str, Rule] = {}
"""All rules by name, filled by ``register``."""

Kind = TypeVar("Kind", bound=type[Rule])


def register(kind: Kind) -> Kind:
    """Make an optimizer known to MemoryX, ``cstorch.optim`` and params.yaml."""
    RULES[kind.__name__] = kind()
    return kind


PLUGINS = Plugins[type[Rule]]("optimizers")
"""Rules of installed packages, by the names of their classes."""


def rule_named(name: str) -> Rule:
    """Return the rule of that name, also of an installed package; ConfigError if there is none."""
    if name not in RULES and name in PLUGINS:
        register(PLUGINS[name])
    if name in RULES:
        return RULES[name]
    raise ConfigError(
        f"MemoryX has no optimizer rule {name!r}",
        code="unknown-optimizer",
        rule=f"known rules: {', '.join([*RULES, *PLUGINS])}",
        remedy=PLUGINS.remedy(name, RULES),
    )


def state_bytes(rule: Rule, shape: Shape, hyper: Hyper) -> int:
    """Return the bytes of state that a rule keeps for one parameter."""
    elements = sum(prod(size) for size in rule.state_shapes(shape, hyper).values())
    return elements * STATE_BYTES_PER_ELEMENT
