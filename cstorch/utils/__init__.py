"""Helpers around the training loop."""

from cstorch.utils import data, tensorboard

__all__ = ["data", "tensorboard"]
