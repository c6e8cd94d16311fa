"""A device beside the processor that has too little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

import pytest
import torch

from appliance.placement.cores import UnlimitedCores
from csnode.devices.device import Staged
from tests.support.errors import raises
from tests.support.programs.small_programs import program
from tests.support.roles.arenas import StrictArena
from tests.support.roles.deferred_queues import DeferredQueues
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.role import RoleContext

BUCKET = plan_streams(program(), 1).gradients[-1]
SLAB = StrictArena().allocate(BUCKET.num_bytes)


def place_weights(device: Staged) -> None:
    device.place({0: SLAB})


def sum_gradients(device: Staged) -> None:
    with device.computing():
        device.memory.allocate(BUCKET)


@pytest.mark.parametrize("act", [place_weights, sum_gradients])
def test_device_without_memory_is_named(
    act: Callable[[Staged], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Never:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    device = Staged(DeferredQueues(), RoleContext(StrictArena(), UnlimitedCores()))
    monkeypatch.setattr(torch, "empty", fail)
    with raises(ApplianceResourceExhausted, "gpu-memory-exhausted") as caught:
        act(device)
    assert (caught.value.where, caught.value.value) == ("cpu", "CUDA out of memory")
