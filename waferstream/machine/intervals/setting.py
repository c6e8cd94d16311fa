"""What a prediction is of, and how far two of them lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot, log10

from waferstream.core.errors import ConfigError


@dataclass(frozen=True)
class Setting:
    """What a prediction is of, as far as its error may depend on it.

    Raises:
        ConfigError: A size is zero or negative.
    """

    family: str
    """Benchmark family of the prediction: ``training CS-2``, ``GPU training FSDP``, ..."""
    machine: str
    """Name of the system or GPU, with the numbers that are not the published ones."""
    sizes: Mapping[str, float]
    """Shape, batch and machine: parameters, tokens, batch, systems, FLOP/s, ...; unknown sizes
    are left out."""

    def __post_init__(self) -> None:
        for name, size in self.sizes.items():
            if not size > 0:
                raise ConfigError(
                    f"a size must be positive; got {name} {size}",
                    code="size-not-positive",
                    where=f"the setting of a prediction, {name}",
                    value=size,
                    rule="a number above 0; an unknown size is left out",
                )


def decades_between(one: Setting, other: Setting) -> float:
    """Return the distance of two settings in decades, over the sizes that both have."""
    shared = one.sizes.keys() & other.sizes.keys()
    return hypot(*(log10(one.sizes[name] / other.sizes[name]) for name in sorted(shared)))


def training_setting(
    family: str,
    machine: str,
    flops_per_s: float | None,
    parameters: float | None,
    tokens: float | None,
    batch_size: float | None,
    systems: float,
) -> Setting:
    """Return the setting of a training step.

    Args:
        family: Benchmark family.
        machine: Name of the system or GPU.
        flops_per_s: Its dense 16-bit peak.
        parameters: Parameters of the model.
        tokens: Tokens of a sample.
        batch_size: Samples of a step over all systems.
        systems: Systems or GPUs.
    """
    sizes = {
        "parameters": parameters,
        "tokens": tokens,
        "samples_per_system": batch_size and batch_size / systems,
        "systems": systems,
        "flops_per_s": flops_per_s,
    }
    return Setting(family, machine, {name: size for name, size in sizes.items() if size})
