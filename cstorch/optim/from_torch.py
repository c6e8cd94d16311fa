"""Torch's optimizers as optimizers of MemoryX, with the hyper-parameters that torch gave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from cstorch import optim
from cstorch.optim.loading import SCHEDULE_KEYS
from cstorch.optim.optimizer import Optimizer
from memoryx.optim.plain_rules import COEFFICIENTS, SMALLEST_NORM
from memoryx.optim.rule import RULES
from waferstream.core.errors import ConfigError, did_you_mean

_OTHER_RULES = frozenset({"Adafactor"})
"""Names under which torch has another rule than MemoryX, which has the vendor's."""

_IMPLEMENTATION = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Options of torch that choose among implementations of one rule."""

_IMPLIED: Mapping[tuple[str, str], object] = {
    ("AdamW", "decoupled_weight_decay"): True,
    ("Muon", "adjust_lr_fn"): "original",
    ("Muon", "eps"): SMALLEST_NORM,
    ("Muon", "ns_coefficients"): COEFFICIENTS,
}
"""Options whose value follows from the class here; all others without a counterpart must be off."""


def from_torch(optimizer: torch.optim.Optimizer) -> Optimizer:
    """Return the optimizer of the same name, with the groups and values of torch's.

    Its state stays behind (``cstorch.optim.taken``).

    Raises:
        ConfigError: MemoryX has no such optimizer, or lacks an option that is on.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    name = type(optimizer).__name__
    module = type(optimizer).__module__
    known = [n for n in RULES if hasattr(torch.optim, n) and n not in _OTHER_RULES]
    if module.split(".")[0] != "torch" or name not in known:
        raise ConfigError(
            f"MemoryX has no optimizer {module}.{name}",
            code="unknown-optimizer",
            where="cstorch.Trainer",
            value=name,
            rule=f"one of cstorch.optim, or of torch.optim: {', '.join(known)}",
            remedy=f"cstorch.optim.{name}, which has the rule and the defaults of the vendor"
            if name in RULES
            else did_you_mean(name, known),
        )
    made: Optimizer = getattr(optim, name)(list(groups_of(optimizer)))
    # The same objects: hooks may be registered and removed later.
    made._optimizer_step_pre_hooks = optimizer._optimizer_step_pre_hooks
    made._optimizer_step_post_hooks = optimizer._optimizer_step_post_hooks
    return made


def groups_of(optimizer: torch.optim.Optimizer) -> Iterator[dict[str, Any]]:
    """Yield the parameter groups of torch's optimizer with the values that the rule knows.

    Raises:
        ConfigError: MemoryX lacks an option that is on.
    """
    name = type(optimizer).__name__
    yield from (_group(name, group) for group in optimizer.param_groups)


def _group(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter group with the hyper-parameters that the rule knows."""
    known = RULES[name].Arguments.model_fields
    taken: dict[str, Any] = {"params": group["params"]}
    if "eps_after_correction" in known:
        taken["eps_after_correction"] = True
    if group.get("dampening") and group["momentum"]:
        raise ConfigError(
            "a momentum of torch must have no dampening",
            code="torch-dampening",
            where=f"torch.optim.{name}",
            value=f"dampening={group['dampening']}",
            rule="torch leaves the first gradient undampened, MemoryX does not",
            remedy="cstorch.optim.SGD, if the first step may be dampened as well",
        )
    skipped = {"params", "param_names", *_IMPLEMENTATION, *SCHEDULE_KEYS}
    for key, value in group.items():
        if key in known:
            taken[key] = value.item() if isinstance(value, torch.Tensor) else value
        elif key not in skipped and value not in (None, _IMPLIED.get((name, key), False)):
            raise ConfigError(
                f"{name} of MemoryX has no option {key}",
                code="torch-option-missing",
                where=f"torch.optim.{name}",
                value=f"{key}={value}",
                rule=f"options: {', '.join(known)}",
                remedy="leave it out, or choose another optimizer",
            )
    return taken
