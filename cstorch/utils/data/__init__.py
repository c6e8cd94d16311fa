"""Loaders that run on input workers, and the executor that drives the loop."""

from cstorch.utils.data.data_executor import DataExecutor
from cstorch.utils.data.dataloader import DataLoader
from cstorch.utils.data.restartable import DataLoaderCheckpoint, RestartableDataLoader
from cstorch.utils.data.sampler import DistributedSampler
from cstorch.utils.data.synthetic import SyntheticDataset
from cstorch.utils.data.utils import Schedule, compute_num_steps, infer_batch_size

__all__ = [
    "DataExecutor",
    "DataLoader",
    "DataLoaderCheckpoint",
    "DistributedSampler",
    "RestartableDataLoader",
    "Schedule",
    "SyntheticDataset",
    "compute_num_steps",
    "infer_batch_size",
]
