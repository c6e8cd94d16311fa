"""Optimizers and schedulers as a user constructs them; the rules themselves run in MemoryX.

There is one class for every rule of ``memoryx.optim``, of the same name and with its arguments:
``Adadelta``, ``Adafactor``, ``Adagrad``, ``Adam``, ``Adamax``, ``AdamW``, ``ASGD``, ``Lamb``,
``Lion``, ``Muon``, ``NAdam``, ``RAdam``, ``RMSprop``, ``Rprop``, ``SGD``; and for those that
installed packages offer (``waferstream.core.plugins``).
"""

from cstorch.optim import lr_scheduler, weight_decay_scheduler
from cstorch.optim.optimizer import Optimizer, class_of
from memoryx.optim.rule import PLUGINS, RULES, rule_named

_CLASSES = {name: class_of(rule, __name__) for name, rule in RULES.items()}
globals().update(_CLASSES)

__all__ = ["Optimizer", "lr_scheduler", "weight_decay_scheduler", *_CLASSES]  # noqa: PLE0604


def __getattr__(name: str) -> type[Optimizer]:
    """Return the class for a rule of an installed package."""
    if name.startswith("_") or name not in PLUGINS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = class_of(rule_named(name), __name__)
    return made
