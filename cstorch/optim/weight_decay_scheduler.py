"""Weight-decay schedulers: counterparts of ``lr_scheduler`` (cerebras_pytorch 2.10, ``optim``).

There is one class for every schedule, with WD for LR in its name: ``ConstantWD``, ``LinearWD``,
``SequentialWD``, ... Their arguments have ``val`` where those of a learning rate have
``learning_rate`` or ``lr``: ``val``, ``vals``, ``initial_val``, ``end_val``, ``base_val``,
``max_val``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cstorch.optim.families import scheduler_classes
from cstorch.optim.scheduler import Scheduler


class WeightDecayScheduler(Scheduler):
    """Base of the schedulers that set ``weight_decay``."""

    key = "weight_decay"


if TYPE_CHECKING:

    def __getattr__(name: str) -> type[WeightDecayScheduler]: ...


globals().update(scheduler_classes(WeightDecayScheduler))
