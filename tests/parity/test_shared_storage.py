"""Parameters that share memory train as in a plain loop, or are refused by name."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.plain_torch.side_by_side import CLASSES, assert_like_plain, sgd, trained
from tests.support.programs.cstorch_program import running_backend
from waferstream.core.errors import ApplianceCompilationError, ConfigError


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32, as the plain loop does."""
    cstorch.amp.enable_mixed_precision(False)
    yield
    backends.reset()


class Tied(nn.Module):
    """Two layers tied through ``.data``: two parameters, one memory."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.second.weight.data = self.first.weight.data
        self.out = nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))
        return scores


class Views(nn.Module):
    """Two parameters of the rows ``first`` and ``second`` of one tensor."""

    def __init__(self, first: slice, second: slice) -> None:
        super().__init__()
        torch.manual_seed(0)
        whole = torch.randn(8, 4)
        self.first, self.second = nn.Parameter(whole[first]), nn.Parameter(whole[second])
        self.out = nn.Linear(4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(torch.tanh(torch.tanh(x @ self.first) @ self.second))
        return scores


class Buffered(nn.Module):
    """A layer with a buffer that is a view of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, CLASSES)
        self.register_buffer("row", self.layer.weight.data[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(x) * self.get_buffer("row").sum()
        return scores


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "nesterov": True}])
def test_parameters_tied_through_data_are_one_weight(options: Any) -> None:
    assert_like_plain(Tied, lambda model: sgd(model, **options))


def test_views_without_a_common_element_are_two_weights() -> None:
    assert_like_plain(lambda: Views(slice(0, 4), slice(4, 8)))


@pytest.mark.parametrize(
    "optimize",
    [
        lambda model: sgd(model, weight_decay=0.1),
        lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
        lambda model: torch.optim.SGD([model.first.weight, *model.out.parameters()], lr=0.1),
    ],
)
def test_two_updates_that_are_not_one_are_refused(optimize: Any) -> None:
    model = Tied()
    with raises(ConfigError, "shared-storage-update") as caught:
        trained(model, optimize(model))
    assert caught.value.where == "first.weight"


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Views(slice(0, 4), slice(2, 6)), "first and second"),
        (Buffered(), "layer.weight and row"),
    ],
)
def test_memory_that_is_shared_in_another_way_is_refused(model: nn.Module, names: str) -> None:
    with raises(ConfigError, "shared-storage") as caught:
        trained(model, sgd(model))
    assert caught.value.where == names


def test_constant_that_is_a_view_of_a_weight_is_refused() -> None:
    class Reading(Tied):
        def __init__(self) -> None:
            super().__init__()
            self.second = nn.Linear(4, 4)
            self.frozen = [self.first.weight.data]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x @ self.frozen[0])

    model = Reading()
    with raises(ApplianceCompilationError, "constant-shares-weight") as caught:
        trained(model, sgd(model))
    assert __file__ in (caught.value.where or "")


def test_memory_that_is_shared_after_compile_is_refused() -> None:
    with running_backend() as backend:
        model = cstorch.compile(Views(slice(0, 4), slice(4, 8)), backend)
        with raises(ConfigError, "shared-storage"):
            model.get_parameter("second").data = model.get_parameter("first").data
