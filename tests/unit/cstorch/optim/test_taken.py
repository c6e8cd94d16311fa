"""Torch's optimizers as optimizers of MemoryX."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import cstorch
from cstorch.optim.taken import from_torch
from memoryx.optim.rule import RULES
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2, 2))]


SHARED = sorted(n for n in RULES if hasattr(torch.optim, n) and n != "Adafactor")


@pytest.mark.parametrize("name", SHARED)
def test_every_optimizer_of_torch_keeps_its_defaults(name: str) -> None:
    """Also where the vendor's class has another default, such as eps."""
    theirs: Any = getattr(torch.optim, name)(parameters())
    ours = from_torch(theirs)
    assert type(ours) is getattr(cstorch.optim, name)
    (group,), (expected,) = ours.param_groups, theirs.param_groups
    shared = expected.keys() & RULES[name].Arguments.model_fields.keys()
    assert len(shared) > 2
    for key in shared:
        assert group[key] == expected[key]


def test_parameter_groups_are_kept() -> None:
    """Each has values of its own."""
    first, second = parameters(), parameters()
    groups = [{"params": first, "lr": 0.5}, {"params": second, "weight_decay": 0.0}]
    ours = from_torch(torch.optim.AdamW(groups, lr=0.1, weight_decay=0.2))
    assert [(g["lr"], g["weight_decay"]) for g in ours.param_groups] == [(0.5, 0.2), (0.1, 0.0)]
    assert ours.param_groups[1]["params"] == second
    assert from_torch(ours) is ours


def test_optimizers_that_memoryx_lacks_are_refused() -> None:
    """The error names what exists, in torch or here under the same name."""
    with raises(ConfigError, "unknown-optimizer") as of_torch:
        from_torch(torch.optim.LBFGS(parameters()))
    assert "Lion" not in (of_torch.value.rule or "")  # torch has none
    with raises(ConfigError, "unknown-optimizer") as of_vendor:
        from_torch(torch.optim.Adafactor(parameters()))  # another rule than the vendor's
    assert "optim.Adafactor, which has the rule" in (of_vendor.value.remedy or "")


def test_options_that_memoryx_lacks_are_refused() -> None:
    """An option that is off by default must stay off."""
    with raises(ConfigError, "torch-option-missing"):
        from_torch(torch.optim.Adam(parameters(), decoupled_weight_decay=True))
    with raises(ConfigError, "torch-option-missing"):
        from_torch(torch.optim.Muon(parameters(), adjust_lr_fn="match_rms_adamw"))
    from_torch(torch.optim.Muon(parameters(), adjust_lr_fn="original"))  # as the default


def test_keys_of_schedules_are_no_options() -> None:
    """Schedulers of torch leave values of their own in the groups."""
    optimizer = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5)
    (group,) = from_torch(optimizer).param_groups
    assert group["lr"] == optimizer.param_groups[0]["lr"] < 0.1


def test_adam_of_torch_keeps_the_place_of_eps() -> None:
    """torch adds it after the correction, the vendor's Adam before."""
    assert from_torch(torch.optim.Adam(parameters())).param_groups[0]["eps_after_correction"]
    assert not cstorch.optim.Adam(parameters()).param_groups[0]["eps_after_correction"]


def test_dampened_momentum_of_torch_is_refused() -> None:
    """Its first step would differ; without momentum the dampening has no effect."""
    with raises(ConfigError, "torch-dampening"):
        from_torch(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, dampening=0.5))
    from_torch(torch.optim.SGD(parameters(), lr=0.1, dampening=0.5))
