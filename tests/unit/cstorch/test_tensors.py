"""Tensor helpers: torch's functions on the device of the backend."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import cstorch
from cstorch.tensors import current_name_scope
from tests.support.programs.cstorch_program import executor, losses
from tests.support.roles.local_machine import Regression


def test_helpers_make_the_tensors_of_torch() -> None:
    """Also without a backend, on the CPU."""
    like = torch.zeros(2, 3)
    pairs = [
        (cstorch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])),
        (cstorch.full((2, 3), 4.0), torch.full((2, 3), 4.0)),
        (cstorch.ones((2,), torch.int64), torch.ones(2, dtype=torch.int64)),
        (cstorch.zeros((2,)), torch.zeros(2)),
        (cstorch.full_like(like, 5.0), torch.full_like(like, 5.0)),
        (cstorch.ones_like(like), torch.ones_like(like)),
        (cstorch.zeros_like(like, torch.bool), torch.zeros_like(like, dtype=torch.bool)),
        (cstorch.make_constant(2.5), torch.tensor(2.5)),
        (cstorch.make_constant(np.arange(3)), torch.arange(3)),
    ]
    for found, expected in pairs:
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


def test_arrays_become_tensors_and_back() -> None:
    """A read-only array is copied; bfloat16 becomes float32."""
    array = np.arange(4.0)
    assert cstorch.from_numpy(array).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    assert cstorch.from_numpy(array).data_ptr() != array.ctypes.data
    half = torch.tensor([1.5], dtype=torch.bfloat16, requires_grad=True)
    assert cstorch.to_numpy(half).dtype == np.float32
    assert np.array_equal(cstorch.to_numpy(cstorch.from_numpy(array)), array)


def test_constants_are_part_of_a_traced_step(backend: cstorch.Backend) -> None:
    """The result is that of the constant's value."""
    with cstorch.device():
        model = cstorch.compile(Regression(), backend)

    @cstorch.trace
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        assert backend.is_tracing
        loss: torch.Tensor = model(**batch)
        return loss * 0 + cstorch.make_constant(torch.tensor(2.0)) * cstorch.full((), 3.0)

    assert losses(step, executor(1)) == [6.0]
    assert not backend.is_tracing


def test_name_scopes_nest() -> None:
    """Also when they are entered and left by hand."""
    inner = cstorch.name_scope("inner")
    with cstorch.name_scope("outer"):
        inner.__enter__()
        assert current_name_scope() == "outer.inner"
        inner.__exit__(None, None, None)
        assert current_name_scope() == "outer"
    assert current_name_scope() == ""


def test_debug_names_are_paths_of_modules() -> None:
    """A scope precedes them; a module without a noted path has the name of its class."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert cstorch.get_debug_name(model[1]) == "ReLU"
    cstorch.add_debug_name(model, "net")
    assert [cstorch.get_debug_name(part) for part in model] == ["net.0", "net.1"]
    cstorch.set_debug_scope("train")
    assert cstorch.get_debug_name(model) == "train.net"
    cstorch.set_debug_scope(None)
    assert cstorch.get_debug_name(model) == "net"
