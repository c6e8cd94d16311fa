"""Initial weights: each parameter depends on (seed, its name) alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import nn

from wsc.core.rng import stream_key


@torch.no_grad()
def fill_parameters(
    model: nn.Module, seed: int, std: float, exceptions: Mapping[str, float] = MappingProxyType({})
) -> None:
    """Biases are 0, norm weights 1, all other weights normal with standard deviation ``std``.

    ``exceptions`` maps ends of names to standard deviations of their own; 0 gives zeros.
    """
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif name.endswith("norm.weight"):
            parameter.fill_(1)
        else:
            own = next((exceptions[end] for end in exceptions if name.endswith(end)), std)
            generator = torch.Generator().manual_seed(stream_key(seed, "init", name))
            parameter.normal_(0, own, generator=generator)
