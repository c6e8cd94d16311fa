"""Fully connected classifier of handwritten digits."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt, model_validator
from torch import nn

from cstorch.metrics import AccuracyMetric
from waferstream.core.rng import stream_key
from waferstream.workload.model_config import Feature, ModelConfig
from waferstream.workload.models import ModelFamily

IMAGE = (1, 28, 28)
"""Channels, height and width (LeCun et al. 1998, MNIST)."""

NUM_CLASSES = 10


class FcMnistConfig(ModelConfig):
    """Fully connected layers over an image of 28 x 28 pixels."""

    name: str = "fc_mnist"
    hidden_sizes: tuple[PositiveInt, ...] | None = None
    """Elements of each hidden layer; by default ``depth`` layers of ``hidden_size``."""
    depth: PositiveInt | None = None
    hidden_size: PositiveInt | None = None
    use_bias: bool = True
    activation_fn: Literal["relu"] | None = None
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate of each hidden layer."""
    disable_softmax: Literal[False] = False
    compute_eval_metrics: bool = False
    """Whether an evaluation computes the accuracy."""
    to_float16: Literal[False] = False
    """Must be false: the section ``precision`` states the precision."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements before, between and after the layers."""
        hidden = self.hidden_sizes or (self.hidden_size or 0,) * (self.depth or 0)
        return (prod(IMAGE), *hidden, NUM_CLASSES)

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:  # noqa: ARG002
        return Feature("images", IMAGE), Feature("labels", (), NUM_CLASSES)

    @model_validator(mode="after")
    def _sizes_are_stated(self) -> Self:
        if self.hidden_sizes is None and (self.depth is None or self.hidden_size is None):
            raise ValueError("hidden_sizes, or depth and hidden_size, must be given")
        return self


class FcMnistModel(nn.Module):
    """Fully connected classifier: images and classes to loss."""

    def __init__(self, config: FcMnistConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(
            nn.Linear(size, other, bias=config.use_bias) for size, other in pairwise(config.sizes)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.accuracy: AccuracyMetric | None = None

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over samples.

        Args:
            images: fp32 (B, 1, 28, 28).
            labels: int64 (B,).
        """
        *hidden, last = self.layers
        x = images.flatten(1).to(next(last.parameters()).dtype)
        for layer in hidden:
            x = layer(x)
            x = self.dropout(F.relu(x) if self.config.activation_fn else x)
        scores = last(x)
        if self.accuracy is not None and not self.training:
            self.accuracy(labels, scores.argmax(-1))
        return F.cross_entropy(scores.float(), labels)

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Initialize each parameter from (seed, its name), in the range of torch.nn.Linear."""
        for number, layer in enumerate(self.layers):
            most = self.config.sizes[number] ** -0.5
            for name, parameter in layer.named_parameters(f"layers.{number}"):
                generator = torch.Generator().manual_seed(stream_key(seed, "init", name))
                parameter.uniform_(-most, most, generator=generator)
        if self.config.compute_eval_metrics:
            self.accuracy = AccuracyMetric("accuracy")


FC_MNIST = ModelFamily(FcMnistModel, FcMnistConfig)
