"""What the log says of differences between a training and a plain loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from cstorch import backends

LOCAL = ClusterSpec(runtime=RuntimeSpec(kind="local"))


@pytest.fixture(autouse=True)
def default_flags() -> Iterator[None]:
    yield
    backend = cstorch.current_backend(raise_exception=False)
    if backend is not None:
        backend.shutdown()
    backends.reset()


def said(model: nn.Module, caplog: pytest.LogCaptureFixture, num_csx: int = 2) -> list[str]:
    """Return the warnings of two fits."""
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    trainer = cstorch.Trainer(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config=cstorch.CSConfig(max_steps=1, cluster=LOCAL, num_csx=num_csx),
        loss_fn=functional.mse_loss,
    )
    with caplog.at_level("WARNING", "waferstream"):
        for _ in range(2):
            trainer.fit([(x, x.sum(dim=1, keepdim=True))])
    return [record.getMessage() for record in caplog.records]


def normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


def test_half_precision_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the call that switches it off."""
    (text,) = said(nn.Linear(4, 1), caplog)
    assert "bfloat16" in text
    assert "enable_mixed_precision(False)" in text


def test_batch_norm_of_micro_batches_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """With both sizes, and the key that sets them."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = 2
    (text,) = said(normed(), caplog)
    for part in ("micro-batches of 2 ", "the batch of 8;", "micro_batch_size", "up to 4"):
        assert part in text


class Counting(nn.Linear):
    """Counts its calls in a buffer."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


@pytest.mark.parametrize("size", [2, 8])
def test_buffers_written_by_micro_batches_are_said_once(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With their name and how often; not where a batch is one micro-batch."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = size
    texts = said(Counting(), caplog, num_csx=1)
    assert [("calls" in text, "4 micro-batches" in text) for text in texts] == [(True, True)] * (
        size == 2
    )


def test_nothing_is_said_where_nothing_differs(caplog: pytest.LogCaptureFixture) -> None:
    """In fp32 without batch norm, or with one that only reads its running statistics."""
    cstorch.amp.enable_mixed_precision(False)
    model = normed()
    model[1].eval()
    assert said(model, caplog) == []
