"""Rules by the name that an OptimizerSpec carries."""

from __future__ import annotations

from collections.abc import Mapping

from memoryx.optim.adafactor import Adafactor
from memoryx.optim.adam import Adam, AdamW
from memoryx.optim.lamb import Lamb
from memoryx.optim.lion import Lion
from memoryx.optim.rule import Rule, state_bytes
from memoryx.optim.sgd import SGD
from wsc.core.errors import ConfigError, did_you_mean
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import TensorSpec

RULES: Mapping[str, Rule] = {
    "SGD": SGD(),
    "Adam": Adam(),
    "AdamW": AdamW(),
    "Lion": Lion(),
    "Adafactor": Adafactor(),
    "Lamb": Lamb(),
}


def rule_named(name: str) -> Rule:
    """The rule of that name; ConfigError if MemoryX has none."""
    if name in RULES:
        return RULES[name]
    raise ConfigError(
        f"MemoryX has no optimizer rule {name!r}",
        rule=f"known rules: {', '.join(RULES)}",
        remedy=did_you_mean(name, RULES),
    )


def state_bytes_per_element(
    optimizer: OptimizerSpec | None, parameters: Mapping[str, TensorSpec]
) -> int:
    """Bytes of optimizer state per trained element, on average over the model, rounded up."""
    if optimizer is None:
        return 0
    rule = rule_named(optimizer.rule)
    pairs = [(parameters[name], group) for group in optimizer.groups for name in group.names]
    state = sum(state_bytes(rule, spec.shape, group.hyper) for spec, group in pairs)
    return -(-state // max(1, sum(spec.num_elements for spec, _ in pairs)))
