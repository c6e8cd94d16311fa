"""Loaders that run on input workers, and the executor that drives the loop."""

from cstorch.utils.data.data_executor import DataExecutor
from cstorch.utils.data.dataloader import DataLoader

__all__ = ["DataExecutor", "DataLoader"]
