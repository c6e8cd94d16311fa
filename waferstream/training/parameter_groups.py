"""Groups of parameters by weight decay and learning rate."""

from __future__ import annotations

from typing import Any

from torch import nn

from modelzoo.models.mup import learning_rate_factors
from modelzoo.models.registry import known_config
from waferstream.config.optimizer import DECAYED, NOT_DECAYED
from waferstream.config.params import InitConfig


def parameter_groups(init: InitConfig, model: nn.Module) -> list[dict[str, Any]]:
    """Return the groups of an optimizer: decayed matrices, then other parameters.

    Biases and norm weights (tensors of one dimension) are not decayed, as in the vendor's zoo. Each
    group is divided further where parameters have learning rates of their own (muP). Frozen
    parameters have no group, and so no state in MemoryX.
    """
    assert init.optimizer is not None, "checked by the caller"
    arguments, factors = init.optimizer.arguments(), factors_of(init, model)
    not_decayed = {"weight_decay": 0.0} if "weight_decay" in arguments else {}
    groups: dict[tuple[str, float], dict[str, Any]] = {}
    for tag, own in ((DECAYED, {}), (NOT_DECAYED, not_decayed)):
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad or (parameter.ndim > 1) != (tag == DECAYED):
                continue
            factor = factors.get(name, 1.0)
            key = (tag, factor)
            if key not in groups:
                groups[key] = {"params": [], "tags": tag, **own, **_rate(arguments, factor)}
            groups[key]["params"].append(parameter)
    return list(groups.values())


def factors_of(init: InitConfig, model: nn.Module) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter that has one.

    Raises:
        ConfigError: ``adjust_learning_rate`` names no group of the model.
    """
    assert init.optimizer is not None, "checked by the caller"
    known = known_config(init.model.dump(), "trainer.init.model")
    return learning_rate_factors(
        [name for name, _ in model.named_parameters()],
        known.learning_rate_scales if known is not None else {},
        init.optimizer.adjust_learning_rate,
        f"trainer.init.optimizer.{init.optimizer.class_name}.adjust_learning_rate",
    )


def _rate(arguments: dict[str, Any], factor: float) -> dict[str, float]:
    """Return the keys of a group whose learning rate has a factor."""
    if factor == 1.0:
        return {}
    constant = {} if arguments.get("lr") is None else {"lr": factor * arguments["lr"]}
    return {"adjust_learning_rate": factor, **constant}
