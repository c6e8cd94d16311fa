"""Optimizers and schedulers as a user constructs them; the rules themselves run in MemoryX.

There is one class for every rule of ``memoryx.optim``, of the same name and with its arguments:
``Adadelta``, ``Adafactor``, ``Adagrad``, ``Adam``, ``Adamax``, ``AdamW``, ``ASGD``, ``Lamb``,
``Lion``, ``Muon``, ``NAdam``, ``RAdam``, ``RMSprop``, ``Rprop``, ``SGD``.
"""

from typing import TYPE_CHECKING

from cstorch.optim import lr_scheduler, weight_decay_scheduler
from cstorch.optim.optimizer import Optimizer, optimizer_classes

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[Optimizer]: ...


_CLASSES = optimizer_classes(__name__)
globals().update(_CLASSES)

__all__ = ["Optimizer", "lr_scheduler", "weight_decay_scheduler", *_CLASSES]  # noqa: PLE0604
