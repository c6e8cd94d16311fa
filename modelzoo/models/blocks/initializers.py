"""Initial weights: the initializers of params.yaml, and the filling of a model.

Names and defaults of ``{name: ..., std: ...}`` are the vendor's (Model Zoo 2.10:
``initializer`` and its relatives).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Discriminator, NonNegativeFloat, Tag
from torch import nn

from waferstream.core.config import Config, before
from waferstream.core.rng import stream_key


class WeightInitializer(Config):
    """Distribution of the initial values of a weight."""

    @abstractmethod
    def fill(self, weight: torch.Tensor, generator: torch.Generator, /) -> None:
        """Fill a weight in place."""


class ConstantInitializer(WeightInitializer):
    """One value everywhere."""

    name: Literal["constant"] = "constant"
    val: float

    def fill(self, weight: torch.Tensor, _generator: torch.Generator, /) -> None:
        weight.fill_(self.val)


class ZerosInitializer(WeightInitializer):
    """Zeros."""

    name: Literal["zeros"] = "zeros"

    def fill(self, weight: torch.Tensor, _generator: torch.Generator, /) -> None:
        weight.zero_()


class OnesInitializer(WeightInitializer):
    """Ones."""

    name: Literal["ones"] = "ones"

    def fill(self, weight: torch.Tensor, _generator: torch.Generator, /) -> None:
        weight.fill_(1)


class UniformInitializer(WeightInitializer):
    """Uniform in [a, b)."""

    name: Literal["uniform"] = "uniform"
    a: float = -0.05
    b: float = 0.05

    def fill(self, weight: torch.Tensor, generator: torch.Generator, /) -> None:
        weight.uniform_(self.a, self.b, generator=generator)


class NormalInitializer(WeightInitializer):
    """Normal distribution."""

    name: Literal["normal"] = "normal"
    mean: float = 0.0
    std: NonNegativeFloat = 0.05

    def fill(self, weight: torch.Tensor, generator: torch.Generator, /) -> None:
        weight.normal_(self.mean, self.std, generator=generator)

    def scaled(self, factor: float) -> Self:
        """Return the distribution with ``factor`` times the standard deviation."""
        return self.model_copy(update={"std": self.std * factor})


class TruncatedNormalInitializer(WeightInitializer):
    """Normal distribution within [a, b], by default two standard deviations around 0."""

    name: Literal["truncated_normal"] = "truncated_normal"
    mean: float = 0.0
    std: NonNegativeFloat = 0.05
    a: float | None = None
    b: float | None = None

    def scaled(self, factor: float) -> Self:
        """Return the distribution with standard deviation and bounds times ``factor``."""
        low, high = self._bounds()
        changed = {"std": self.std * factor, "a": low * factor, "b": high * factor}
        return self.model_copy(update=changed)

    def fill(self, weight: torch.Tensor, generator: torch.Generator, /) -> None:
        low, high = self._bounds()
        nn.init.trunc_normal_(weight, self.mean, self.std, low, high, generator)

    def _bounds(self) -> tuple[float, float]:
        low = -2 * self.std if self.a is None else self.a
        return low, 2 * self.std if self.b is None else self.b


class XavierInitializer(WeightInitializer):
    """Spread by the numbers of inputs and outputs (Glorot and Bengio 2010, eqs. 12 and 16)."""

    name: Literal["xavier_normal", "glorot_normal", "xavier_uniform", "glorot_uniform"]
    gain: float = 1.0

    def fill(self, weight: torch.Tensor, generator: torch.Generator, /) -> None:
        is_normal = self.name.endswith("normal")
        draw = nn.init.xavier_normal_ if is_normal else nn.init.xavier_uniform_
        draw(weight, self.gain, generator)


class KaimingUniformInitializer(WeightInitializer):
    """Uniform, spread by the number of inputs (He et al. 2015, section 2.2).

    Bound: sqrt(6 / ((1 + a^2) inputs)), for a leaky ReLU with slope ``a``.
    """

    name: Literal["kaiming_uniform"] = "kaiming_uniform"
    a: float = 0.0

    def fill(self, weight: torch.Tensor, generator: torch.Generator, /) -> None:
        nn.init.kaiming_uniform_(weight, self.a, generator=generator)


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _kind(value: Any) -> str:
    name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
    return "xavier" if str(name).startswith(("xavier", "glorot")) else str(name)


Initializer = Annotated[
    Annotated[ConstantInitializer, Tag("constant")]
    | Annotated[ZerosInitializer, Tag("zeros")]
    | Annotated[OnesInitializer, Tag("ones")]
    | Annotated[UniformInitializer, Tag("uniform")]
    | Annotated[NormalInitializer, Tag("normal")]
    | Annotated[TruncatedNormalInitializer, Tag("truncated_normal")]
    | Annotated[XavierInitializer, Tag("xavier")]
    | Annotated[KaimingUniformInitializer, Tag("kaiming_uniform")],
    Discriminator(_kind),
]
"""An initializer, by its name and arguments."""

InitializerKey = Annotated[
    Initializer | None,
    before(_named, str | Initializer | None),
]
"""A key of params.yaml: a name, a name with arguments, or null."""


@torch.no_grad()
def fill_parameters(
    model: nn.Module,
    seed: int,
    default: WeightInitializer,
    exceptions: Mapping[str, WeightInitializer] = MappingProxyType({}),
    *,
    prefix: str = "",
) -> None:
    """Initialize each parameter from (seed, its name) alone; one without memory has no values.

    Args:
        model: Its biases become 0 and norm weights 1.
        seed: Seed of all generators.
        default: Of all other weights.
        exceptions: Other initializers by the end of a parameter's name.
        prefix: What precedes the names, of a part of a model.
    """
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            continue
        if name.endswith("bias"):
            parameter.zero_()
        elif name.endswith("norm.weight"):
            parameter.fill_(1)
        else:
            own = next((exceptions[end] for end in exceptions if name.endswith(end)), default)
            generator = torch.Generator().manual_seed(stream_key(seed, "init", prefix + name))
            own.fill(parameter, generator)
