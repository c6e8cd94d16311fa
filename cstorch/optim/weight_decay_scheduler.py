"""Weight-decay schedulers: counterparts of ``lr_scheduler`` (cluster_interface.md, section 3.5).

There is one class for every schedule, with WD for LR in its name: ``ConstantWD``, ``LinearWD``,
``SequentialWD``, ... Their arguments have ``val`` where those of a learning rate have
``learning_rate``: ``val``, ``vals``, ``initial_val``, ``end_val``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cstorch.optim.scheduler import Scheduler, scheduler_classes
from wsc.core.hyper_schedules import HyperSchedule

_ARGUMENTS = {
    "val": "learning_rate",
    "vals": "learning_rates",
    "initial_val": "initial_learning_rate",
    "end_val": "end_learning_rate",
}


class WeightDecayScheduler(Scheduler):
    """Base of the schedulers that set ``weight_decay``."""

    key = "weight_decay"

    def _build(self, args: Mapping[str, Any]) -> HyperSchedule:
        return super()._build({_ARGUMENTS.get(key, key): value for key, value in args.items()})


if TYPE_CHECKING:

    def __getattr__(name: str) -> type[WeightDecayScheduler]: ...


globals().update(scheduler_classes(WeightDecayScheduler, "WD"))
