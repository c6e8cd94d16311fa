"""Functions with forms: seen by the modes that have one, and by no other."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from waferstream.numerics.forms import FormMode, has_forms


@has_forms
def doubled(x: torch.Tensor) -> torch.Tensor:
    """Return twice a tensor."""
    return torch.add(x, x)


class Noted(TorchFunctionMode):
    """Notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Own(FormMode):
    """Has a form of a function."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.forms = {name: lambda x: x * 0}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.forms.get(func.__name__, func)(*args, **(kwargs or {}))


def test_mode_with_a_form_computes_the_function() -> None:
    with Own("doubled"):
        assert doubled(torch.ones(1)).item() == 0.0
    assert doubled(torch.ones(1)).item() == 2.0


def test_other_modes_see_what_it_calls() -> None:
    """As an autocast must, which would miss the products of attention otherwise."""
    with Own("other"), Noted() as noted:
        assert doubled(torch.ones(1)).item() == 2.0
    assert "add" in noted.names
    assert "doubled" not in noted.names
