"""Helpers around the training loop."""

from cstorch.utils import data

__all__ = ["data"]
