"""The device of a backend."""

from __future__ import annotations

import torch

import cstorch
from cstorch.devices.device import Device


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
