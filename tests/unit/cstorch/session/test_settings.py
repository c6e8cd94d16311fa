"""What a user sets for a program: limits, and the device of its model."""

from __future__ import annotations

import torch

import cstorch
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def test_compile_only_excludes_validate_only() -> None:
    """Validation stops before compiling ends."""
    with raises(ConfigError, "compile-only-and-validate-only"):
        cstorch.backend("csx", compile_only=True, validate_only=True)


def test_models_are_built_on_the_device(backend: cstorch.Backend) -> None:
    """The device is a torch context in which any model code works."""
    with backend.device as device:
        assert torch.nn.Linear(2, 2).weight.device == device
    assert backend.is_csx
    assert not backend.is_cpu
    assert backend.is_e2e_execution
