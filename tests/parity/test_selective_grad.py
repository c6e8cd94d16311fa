"""Elements that are not selected keep their values; the others are trained as by a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from cstorch import backends
from cstorch.sparse.selective_grad import SelectiveGrad, outlier
from tests.support.errors import raises
from tests.support.plain_torch.side_by_side import Net, assert_like_plain, sgd, trained
from waferstream.core.errors import ConfigError


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32, as the plain loop does."""
    cstorch.amp.enable_mixed_precision(False)
    yield
    backends.reset()


def positive(parameter: torch.Tensor) -> torch.Tensor:
    return parameter > 0


def net(param_filter: Any = "first.*", init_method: Any = positive) -> nn.Module:
    """Return a model of which some elements are selected."""
    return Net().apply(SelectiveGrad(param_filter, init_method))


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam"])
def test_selected_elements_are_trained_as_by_a_plain_loop(name: str) -> None:
    assert_like_plain(net, lambda model: getattr(torch.optim, name)(model.parameters(), lr=0.1))


def test_other_elements_keep_their_bits() -> None:
    """Names are those in the whole model: ``weight`` is none."""
    first, model = Net(), net(["first.weight", "weight"])
    trained(model, sgd(model, momentum=0.9))
    for name, before in first.named_parameters():
        changed = model.get_parameter(name).detach().clone() != before
        assert changed[before > 0].all()
        assert changed[before <= 0].all() == (name != "first.weight")


def test_outliers_are_far_from_the_others_of_their_channel() -> None:
    weight = torch.tensor([[0.1, 9.0], [0.2, 9.1], [5.0, 9.2]])
    assert outlier(weight).tolist() == [[False, True], [False, True], [False, True]]


@pytest.mark.parametrize("options", [{"weight_decay": 0.1}, {"lr": 0.1}])
def test_optimizers_that_change_other_elements_are_refused(options: dict[str, Any]) -> None:
    """Those with weight decay, and ASGD, which has a decay of its own."""
    kind = torch.optim.SGD if "weight_decay" in options else torch.optim.ASGD
    model = net()
    with raises(ConfigError, "selective-grad-with-decay"):
        trained(model, kind(model.parameters(), **options))


def test_unknown_method_is_refused() -> None:
    with raises(ConfigError, "init-method-unknown"):
        SelectiveGrad("*", "outliers")
