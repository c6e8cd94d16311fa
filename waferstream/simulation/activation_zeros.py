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

from appliance.placement.host_memory import free_bytes
from waferstream.config.params import InitConfig, Params
from waferstream.core.errors import ConfigError
from waferstream.core.units import format_bytes
from waferstream.reports.activation_zeros import ActivationZeros, ProductZeros
from waferstream.simulation.capture import example_batch
from waferstream.training.checkpoints.restoring import load_weights
from waferstream.training.setup.model import make_model

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


def measure_zeros(
    model: nn.Module, batch: Mapping[str, torch.Tensor], weights: str = "the given weights"
) -> ActivationZeros:
    """Run ``model(**batch)`` without gradients; return the zeros of each product that ran.

    Args:
        model: Any module.
        batch: Its inputs by name, with samples as rows.
        weights: The weights of the model, in words.
    """
    with counted_zeros(model) as found, torch.no_grad():
        model(**batch)
    ran = [layer for layer in found if layer.num_elements]
    work = sum(layer.work for layer in ran)
    products = (ProductZeros(layer.layer, layer.share, layer.work / work) for layer in ran)
    return ActivationZeros(weights, len(next(iter(batch.values()))), tuple(products))


def zeros_of(params: Params) -> ActivationZeros:
    """Return the zeros that the model of a configuration reads on a few training samples.

    The weights are those of the checkpoint that is named for training, else initial ones.

    Raises:
        ConfigError: The model does not fit into the free memory of this host.
        CheckpointError: The checkpoint cannot be read.
    """
    init, fit = params.trainer.init, params.trainer.fit
    assert fit is not None, "checked when the step was captured"
    batch = example_batch(init, fit.train_dataloader)
    _check_fits(init)
    model, start = make_model(init).eval(), fit.ckpt_path
    if start is None or start == "newest":
        return measure_zeros(model, batch, "initial weights")
    load_weights(model, start)
    return measure_zeros(model, batch, f"the weights of {start}")


def _check_fits(init: InitConfig) -> None:
    """Raise ConfigError if the weights would take more than half of the memory that is free."""
    with torch.device("meta"):
        num_bytes = sum(weight.nbytes for weight in make_model(init).parameters())
    if num_bytes > free_bytes() // 2:
        raise ConfigError(
            "the weights must fit into half of the free memory to measure zeros",
            code="model-exceeds-host",
            where="--activation_zeros",
            value=f"{format_bytes(num_bytes)} of weights, {format_bytes(free_bytes())} free",
            remedy="leave out --activation_zeros, or measure a model with fewer layers",
        )


def _counting(layer: LayerZeros) -> Any:
    def count(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        layer.num_elements += inputs[0].numel()
        layer.num_zeros += inputs[0].numel() - int(torch.count_nonzero(inputs[0]))

    return count
