"""Zeros among activations: measured per layer of any model, and what the wafer would save.

The array multiplies each arriving weight by the activations of its feature. Were zeros among these
skipped as zeros among weights are, a product would take the share of its operations that is left.
The emulated clock does not skip them: no source states that the vendor's kernels do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Modules whose weights stream against resident activations."""


@dataclass
class LayerZeros:
    """The activations that one product has read: how many, and how many of them are zero."""

    layer: str
    num_weights: int
    num_elements: int = 0
    num_zeros: int = 0
    num_features: int = 1

    @property
    def share(self) -> float:
        """The share of zeros; 0 for a layer that has not run."""
        return self.num_zeros / self.num_elements if self.num_elements else 0.0

    @property
    def work(self) -> float:
        """Multiplications of the layer, those with zeros included, per weight of a feature."""
        return self.num_elements * self.num_weights / self.num_features


@contextmanager
def counted_zeros(model: nn.Module) -> Iterator[Sequence[LayerZeros]]:
    """Count zeros among the inputs of every product of a model while the context lasts.

    Modules of torch.nn that multiply weights are seen, products in functions are not.
    """
    found: list[LayerZeros] = []
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, PRODUCTS):
            layer = LayerZeros(name, module.weight.numel(), num_features=module.weight.shape[1])
            found.append(layer)
            hooks.append(module.register_forward_pre_hook(_counting(layer)))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def measure_zeros(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> Sequence[LayerZeros]:
    """Run ``model(**batch)`` without gradients; return the zeros of each product that ran."""
    with counted_zeros(model) as found, torch.no_grad():
        model(**batch)
    return [layer for layer in found if layer.num_elements]


def saved_share(layers: Sequence[LayerZeros]) -> float:
    """Return the share of the products' multiplications that read a zero."""
    total = sum(layer.work for layer in layers)
    return sum(layer.work * layer.share for layer in layers) / total if total else 0.0


def zeros_table(layers: Sequence[LayerZeros]) -> str:
    """Return the measurement as lines: a layer each, then what skipping zeros would save."""
    width = max((len(layer.layer) for layer in layers), default=0)
    lines = [f"{layer.layer:<{width}}  {layer.share:7.1%}" for layer in layers]
    return "\n".join([*lines, f"skipping zeros would save {saved_share(layers):.1%} of products"])


def _counting(layer: LayerZeros) -> Any:
    def count(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        layer.num_elements += inputs[0].numel()
        layer.num_zeros += inputs[0].numel() - int(torch.count_nonzero(inputs[0]))

    return count
