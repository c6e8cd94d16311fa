"""The device of a backend."""

from __future__ import annotations

import torch

import cstorch
from cstorch.devices import BackendType, Device
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def test_device_prints_as_its_kind(backend: cstorch.Backend) -> None:
    assert str(backend.device) == "CSX"
    with backend.device as device:
        assert device == torch.device("cpu")


def test_device_can_be_entered_again() -> None:
    device = Device("CPU", torch.device("meta"))
    for _ in range(2):
        with device:
            assert torch.zeros(1).is_meta
        assert not torch.zeros(1).is_meta


def test_kinds_have_names_in_any_case() -> None:
    kind = BackendType.from_str("csx")
    assert kind is BackendType.CSX
    assert kind == "CSX"
    assert (kind.is_csx, kind.is_cpu, kind.is_gpu) == (True, False, False)


def test_an_unknown_kind_is_refused() -> None:
    with raises(ConfigError, "unknown-backend-type"):
        BackendType.from_str("TPU")
