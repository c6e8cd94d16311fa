"""Helpers around the training loop."""

from cstorch.utils import benchmark, data, tensorboard

__all__ = ["benchmark", "data", "tensorboard"]
