"""What an update costs."""

from dataclasses import replace

import pytest

from memoryx.optim.cost import FLOPS_PER_ELEMENT, NO_UPDATE, clips_by_norm, update_cost
from memoryx.optim.registry import RULES
from wsc.core.errors import ConfigError
from wsc.core.optimizer import OptimizerSpec, ParamGroup
from wsc.core.program import TensorSpec

WEIGHT = TensorSpec("weight", (8, 4), "float32")


def spec(rule: str, **hyper: object) -> OptimizerSpec:
    return OptimizerSpec(rule, (ParamGroup(("weight",), hyper),))


def test_every_rule_has_a_cost() -> None:
    """No rule that MemoryX knows is free."""
    assert set(FLOPS_PER_ELEMENT) == set(RULES)
    assert min(FLOPS_PER_ELEMENT.values()) > 0


def test_the_cost_follows_rule_and_state() -> None:
    """AdamW keeps two moments, Lion one; SGD without momentum keeps nothing."""
    parameters = {"weight": WEIGHT}
    assert update_cost(spec("AdamW", amsgrad=False), parameters) == (8, 15)
    assert update_cost(spec("AdamW", amsgrad=True), parameters).state_bytes == 12
    assert update_cost(spec("Lion"), parameters) == (4, 9)
    assert update_cost(spec("SGD", momentum=0.0), parameters).state_bytes == 0


def test_a_step_without_an_optimizer_costs_nothing() -> None:
    """An evaluation keeps no state, does no operations, and waits for no norm."""
    assert update_cost(None, {"weight": WEIGHT}) == NO_UPDATE
    assert not clips_by_norm(None)


@pytest.mark.parametrize(("limit", "waits"), [(None, False), (1.0, True)])
def test_only_a_limit_of_the_norm_makes_updates_wait(limit, waits) -> None:
    """Clipping by value needs no gradient but the parameter's own."""
    update = replace(spec("SGD"), max_gradient_norm=limit, max_gradient_value=0.5)
    assert clips_by_norm(update) == waits


def test_an_unknown_rule_is_refused() -> None:
    """With the rules there are."""
    with pytest.raises(ConfigError, match="AdamW"):
        update_cost(spec("AdmaW"), {"weight": WEIGHT})
