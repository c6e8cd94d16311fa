"""Staged training has no race: events order every access to memory that queues share.

Each wait is needed, too: where one of the queues does not listen, a race is found.
"""

from __future__ import annotations

from functools import partial

import pytest

from appliance.coordinator.commands import HashWeights, Run
from appliance.elaboration.elaborate import ClusterSize
from csnode.devices import DeviceName
from tests.parity.test_device import WithDropout
from tests.support.roles.local_machine import (
    BF16,
    compile_model,
    installation,
    random_batches,
    sgd,
    start,
)
from tests.support.roles.ordered_queues import (
    COMPUTE,
    HOST,
    INWARD,
    NAMES,
    OUTWARD,
    OrderedQueues,
    Race,
)
from waferstream.core.errors import WaferStreamError
from waferstream.core.program.program import ProgramKind


def trained(device: DeviceName, queues: OrderedQueues) -> object:
    """Train two steps of five micro-batches, one a round; return the digest of the weights."""
    model, batches = WithDropout(), random_batches(2, rows=10)
    compiled = compile_model(model, batches[0], 5, precision=BF16)
    size = ClusterSize(1, activation_bytes=1, device=device)
    source = partial(random_batches, 2, 10)
    installed = installation(compiled, source, sgd(model, max_gradient_norm=0.1), size)
    cluster = start(installed, model, size)
    with queues.watching():
        cluster.do(Run(ProgramKind.TRAIN, 1, 2))
    return cluster.do(HashWeights())


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> partial[None]:
    """Let ``device: cuda`` be given queues."""
    monkeypatch.setattr("appliance.placement.placer.num_gpus", lambda: 1)
    monkeypatch.setattr("appliance.placement.placer.memory_of_gpus", lambda: [1 << 30])

    def take(queues: OrderedQueues) -> None:
        monkeypatch.setattr("csnode.devices.device.queues_of_gpu", lambda _: queues)

    return partial(take)


@pytest.mark.parametrize("early", [True, False])
def test_events_order_every_access(early: bool, use: partial[None]) -> None:
    """Whenever the host learns that work is done; and the bits are those of the processor."""
    use(queues := OrderedQueues(early=early))
    assert trained("cuda", queues) == trained("cpu", OrderedQueues())


@pytest.mark.parametrize("deaf", [HOST, INWARD, COMPUTE, OUTWARD], ids=NAMES.__getitem__)
def test_each_queue_must_wait(deaf: int, use: partial[None]) -> None:
    """So the check above sees what it is for."""
    use(queues := OrderedQueues(deaf=deaf))
    with pytest.raises((Race, WaferStreamError)) as caught:
        trained("cuda", queues)
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, Race):
        error = error.__cause__
    assert isinstance(error, Race)
