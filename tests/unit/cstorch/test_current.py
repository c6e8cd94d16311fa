"""Accessors of the backend of this process."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import cstorch
from cstorch import current
from tests.support.cstorch_program import executor, loader


def test_accessors_answer_without_a_backend() -> None:
    """Models and loaders may be tried without one."""
    assert not cstorch.use_cs()
    assert cstorch.current_torch_device() == torch.device("cpu")


def test_accessors_name_what_belongs_to_the_backend(backend: cstorch.Backend) -> None:
    """The executor is known while its loop runs."""
    assert cstorch.use_cs()
    assert cstorch.current_torch_device() == backend.torch_device
    with pytest.raises(RuntimeError, match="no executor loop"):
        cstorch.current_executor()
    loop = executor(1)
    assert [cstorch.current_executor() for _ in loop] == [loop]


def test_use_cs_is_true_on_an_input_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has no backend; its loader must yield what that of the user's process yields."""
    monkeypatch.setattr(current, "_is_input_worker", False)
    assert loader(cstorch.use_cs).source()
    assert cstorch.use_cs()


def test_to_cpu_takes_structures(backend: cstorch.Backend) -> None:
    """Values that are not tensors are kept."""
    value: dict[str, Any] = {"x": torch.ones(2), "more": [torch.zeros(1), "text"]}
    found = backend.to_cpu(value)
    assert torch.equal(found["x"], value["x"])
    assert found["more"][1] == "text"
