"""Learning-rate schedulers, named as the vendor's (cerebras_pytorch 2.10, ``optim``).

There is one class for every schedule of ``waferstream.core.hyper_schedules``, of the same name,
with its arguments and formula: ``ConstantLR``, ``LinearLR``, ``SequentialLR``, ...; and
``LambdaLR``, whose values are a function of the user's. Call ``step()`` after ``optimizer.step()``,
inside the traced function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cstorch.optim.families import scheduler_classes
from cstorch.optim.scheduler import Scheduler


class LRScheduler(Scheduler):
    """Base of the schedulers that set ``lr``."""

    key = "lr"

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each parameter group after the steps taken so far."""
        return [group["lr"] for group in self.optimizer.param_groups]


if TYPE_CHECKING:

    def __getattr__(name: str) -> type[LRScheduler]: ...


globals().update(scheduler_classes(LRScheduler))
