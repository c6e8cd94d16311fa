"""Callbacks: what a run calls at the points that the vendor's trainer has, by the same names.

A params file names those of the user's by import path, and those of installed packages by name:

callbacks:
- class: mypackage.callbacks:Report
  every: 10                            # keyword arguments
- Report: {every: 10}                  # an entry point of a package (waferstream.core.plugins)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from waferstream.config.params import InitConfig
from waferstream.config.sections.callbacks import UserCallback
from waferstream.config.sections.plugins import Plugin
from waferstream.core.errors import ConfigError
from waferstream.workload import user_classes

_WHERE = "trainer.init.callbacks"

IN_TRACE = (
    *("on_train_step_start", "on_train_step_end", "on_before_forward", "on_after_forward"),
    *("on_before_backward", "on_after_backward"),
    *("on_before_optimizer_step", "on_after_optimizer_step"),
    *("on_before_optimizer_zero_grad", "on_after_optimizer_zero_grad"),
    *("on_before_scheduler_step", "on_after_scheduler_step"),
)
"""Hooks of a training step: they run while it is traced, and their tensors have no values."""

AROUND = (
    *("pre_setup", "setup", "post_setup"),
    *("on_fit_start", "on_fit_end", "on_fit_exception"),
    *("on_train_start", "on_train_end", "on_train_exception"),
    *("on_train_batch_start", "on_train_batch_end"),
    *("on_validate_start", "on_validate_end", "on_validate_exception"),
    *("on_validate_batch_start", "on_validate_batch_end"),
    *("on_save_checkpoint", "on_after_save_checkpoint"),
    *("on_before_load_checkpoint", "on_load_checkpoint"),
)
"""Hooks outside of the trace; ``batch_end`` ones get results, whose values closures receive."""

HOOKS = frozenset((*IN_TRACE, *AROUND))

_NOT_HERE = frozenset(
    {
        *("finalize", "on_enter_fit", "on_enter_train", "on_enter_validate"),
        *("on_enter_validate_all", "on_validate_step_start", "on_validate_step_end"),
        *("run_validation", "on_save_trainer_state", "on_load_trainer_state"),
        *("on_after_save_trainer_state", "postprocess_checkpoint", "preprocess_checkpoint"),
    }
)
"""Hooks of the vendor's trainer that no run calls."""


class Callbacks:
    """The callbacks of one run, in the order of the params file.

    Args:
        entries: Objects with methods of the names in ``HOOKS``; each may lack any of them.
    """

    def __init__(self, entries: Iterable[object] = ()) -> None:
        self._entries: Sequence[object] = tuple(entries)
        self._methods: Mapping[str, list[Any]] = {
            hook: [getattr(entry, hook) for entry in self._entries if hasattr(entry, hook)]
            for hook in HOOKS
        }

    @property
    def hear_traces(self) -> bool:
        """Whether one of them takes part in a training step."""
        return any(self._methods[hook] for hook in IN_TRACE)

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of every callback that has it."""
        for method in self._methods[hook]:
            method(*arguments)


def make_callbacks(init: InitConfig) -> list[object]:
    """Return the callbacks and loggers of the user's and of packages, in the order of the file.

    Raises:
        ConfigError: One cannot be imported, its arguments do not fit, or it has a hook that no run
            calls.
    """
    made: list[object] = []
    for entry in (*init.callbacks, *init.loggers):
        match entry:
            case UserCallback():
                callback = user_classes.make(entry.dump(), _WHERE)
                made.append(_checked(callback, entry.class_path))
            case Plugin():
                ((name, arguments),) = entry.dump().items()
                kind = entry.plugins[name]
                callback = user_classes.call(kind, arguments or {}, name, _WHERE)
                made.append(_checked(callback, name))
    return made


def _checked(callback: object, name: str) -> object:
    unknown = sorted(_NOT_HERE & set(dir(callback)))
    if unknown:
        raise ConfigError(
            "a callback must have hooks that a run calls",
            code="callback-hook-not-here",
            where=f"{_WHERE}: {name}",
            value=", ".join(unknown),
            rule=f"of {', '.join(sorted(HOOKS))}",
            remedy="move the code to one of these hooks",
        )
    return callback


NO_CALLBACKS = Callbacks()
