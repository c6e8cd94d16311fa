"""Functions of the vendor's releases 1.8 to 2.2 that later releases replaced.

``waferstream_compat.older_names`` has the names under which programs find them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from itertools import accumulate
from typing import Any

import torch

from cstorch import amp, flags, optim
from cstorch.closures import step_closure
from cstorch.cluster import config as cluster
from cstorch.current import current_session
from cstorch.distributed import ClusterConfig
from cstorch.utils.tensorboard import SummaryWriter
from waferstream.core.errors import ConfigError, did_you_mean

log = logging.getLogger("waferstream")

_summaries: dict[str, torch.Tensor] = {}
"""Values that a step has summarized and nobody has written yet."""


@dataclass
class CSConfig(ClusterConfig):
    """Settings of a job, with those that are flags now; None stands for the default."""

    precision_opt_level: int | None = None
    debug_args: Any = None
    transfer_processes: int | None = None

    def __post_init__(self) -> None:
        for entry in fields(ClusterConfig):
            if getattr(self, entry.name) is None and entry.name not in _WITHOUT_DEFAULT:
                setattr(self, entry.name, getattr(ClusterConfig(), entry.name))

    def for_cluster(self) -> cluster.ClusterConfig:
        """Return the settings that the emulated cluster takes, and set the level of precision."""
        if self.precision_opt_level is not None:
            flags.csx.precision.optimization_level = self.precision_opt_level  # type: ignore[assignment]
        return super().for_cluster()

    __hash__ = ClusterConfig.__hash__


_WITHOUT_DEFAULT = {"job_time_sec", "workflow_id"}


def use_bfloat16(enabled: bool = True) -> None:
    """Let half precision be bfloat16, or float16."""
    amp.set_half_dtype("bfloat16" if enabled else "float16")


@step_closure
def summarize_scalar(name: str, value: torch.Tensor) -> None:
    """Write a number of the step to the ``writer`` of the executor, or for ``save_summaries``."""
    _summaries[name] = value
    writer = getattr(current_session().loop, "writer", None)
    if writer is not None:
        save_summaries(writer, current_session().global_step)


summarize_tensor = summarize_scalar


def save_summaries(writer: SummaryWriter, step: int) -> None:
    """Write what the last step has summarized."""
    for name, value in _summaries.items():
        write = writer.add_tensor if value.ndim else writer.add_scalar
        write(name, value, step)
    _summaries.clear()


def configure_optimizer(optimizer_type: str, params: Any, **options: Any) -> optim.Optimizer:
    """Return the optimizer of a name; options that it does not have are left out, with a warning.

    Raises:
        ConfigError: There is no such optimizer.
    """
    kind = _of_name(optimizer_type, optim, "optimizer_type")
    if isinstance(rate := options.pop("learning_rate", None), int | float):
        options.setdefault("lr", rate)
    taken = {name: value for name, value in options.items() if name in signature(kind).parameters}
    if left := sorted(set(options) - set(taken)):
        log.warning("%s has no options %s: they have no effect", kind.__name__, ", ".join(left))
    made: optim.Optimizer = kind(params, **taken)
    return made


def configure_lr_scheduler(optimizer: optim.Optimizer, learning_rate: Any) -> Any:
    """Return the schedule of learning rates that a section of params.yaml describes.

    Args:
        optimizer: The optimizer.
        learning_rate: A number, one schedule as a dict with its name under ``scheduler``, or a list
            of such dicts that follow each other; None for no schedule.
    """
    if learning_rate is None:
        return None
    if isinstance(learning_rate, int | float):
        learning_rate = {"scheduler": "Constant", "learning_rate": learning_rate}
    if isinstance(learning_rate, Mapping):
        return _schedule(optimizer, learning_rate)
    parts: Sequence[Any] = [_schedule(optimizer, part) for part in learning_rate]
    ends = accumulate(int(_renamed(part)["total_iters"]) for part in learning_rate[:-1])
    return optim.lr_scheduler.SequentialLR(optimizer, schedulers=parts, milestones=list(ends))


def _schedule(optimizer: optim.Optimizer, section: Mapping[str, Any]) -> Any:
    options = _renamed(section)
    name = str(options.pop("scheduler", None)).lower().removesuffix("lr") + "lr"
    return _of_name(name, optim.lr_scheduler, "scheduler")(optimizer, **options)


def _renamed(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with the names of arguments of later releases."""
    return {{"steps": "total_iters"}.get(name, name): value for name, value in section.items()}


def _of_name(name: str, place: Any, where: str) -> Any:
    """Return the class of a name in a module, whatever its capitals are."""
    known = {each.lower(): each for each in dir(place) if each[0].isupper()}
    if name.lower() not in known:
        raise ConfigError(
            f"{where} must name a class of {place.__name__}",
            code="unknown-class-name",
            where=where,
            value=name,
            rule=f"one of {', '.join(known.values())}",
            remedy=did_you_mean(name, known.values()),
        )
    return getattr(place, known[name.lower()])
