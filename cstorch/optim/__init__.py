"""Optimizers and schedulers as a user constructs them; the rules themselves run in MemoryX."""

from cstorch.optim import lr_scheduler, weight_decay_scheduler
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.optimizers import SGD, Adafactor, Adam, AdamW, Lamb, Lion

__all__ = [
    "SGD",
    "Adafactor",
    "Adam",
    "AdamW",
    "Lamb",
    "Lion",
    "Optimizer",
    "lr_scheduler",
    "weight_decay_scheduler",
]
