"""One training step of a case of PyTorch, on a local cluster and in a plain loop."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

import torch

from appliance.coordinator.commands import ReadWeights, Run
from appliance.elaboration.elaborate import ClusterSize
from tests.support.plain_torch.keyed_draws import KeyedDraws
from tests.support.plain_torch.torch_cases import Case, CaseModel
from tests.support.roles.local_machine import compile_model, installation, sgd, start
from waferstream.compiler.compiled import Compiled
from waferstream.core.program.program import ProgramKind

LEARNING_RATE = 0.1

RELATE_SAMPLES = frozenset(
    {"histc", "take", "renorm", "trace", "cdist", "pdist", "addbmm", "addr", "cross"}
    | {"Embedding with padding, scaled by frequency", "shape in place"}
    | {"GRU(5, 4, num_layers=2, dropout=0.3, bidirectional=True) on (3, 5)"}  # over time
)
"""Cases whose loss is no sum over samples, so that a batch is one micro-batch."""


def num_micro_batches(case: Case) -> int:
    return 1 if case.name in RELATE_SAMPLES else 2


@cache
def compiled(case: Case) -> Compiled:
    """Return the training step of a case."""
    return compile_model(case.model(), case.inputs(), num_micro_batches(case))


def plain_step(
    model: CaseModel,
    batch: Mapping[str, torch.Tensor],
    count: int,
    share: float,
    batch_draws: Collection[int],
) -> float:
    """Run one SGD step of a plain PyTorch loop over ``count`` micro-batches; return the loss.

    ``share`` is that of a micro-batch in the loss of the batch: 1 of a sum. ``batch_draws`` are the
    random ops, counted, that draw once for the batch.
    """
    losses = []
    pieces = zip(*(tensor.chunk(count) for tensor in batch.values()), strict=True)
    for index, piece in enumerate(pieces):
        with KeyedDraws(index, batch_draws=batch_draws):
            loss = model(**dict(zip(batch, piece, strict=True)))
            (loss * share).backward()
        losses.append(loss.item())
    torch.optim.SGD(model.parameters(), lr=LEARNING_RATE).step()
    return sum(losses) * share


def check_step(case: Case) -> None:
    """Compare the loss and the weights after one step, bit for bit."""
    batch, model, plain = case.inputs(), case.model(), case.model()
    size = ClusterSize(1)
    installed = installation(compiled(case), lambda: [batch], sgd(model, LEARNING_RATE), size)
    cluster = start(installed, model, size)
    try:
        (result,) = cluster.do(Run(ProgramKind.TRAIN, 1, 1))
        count = num_micro_batches(case)
        share = 1.0 if installed.program.totals else 1 / count
        loss = plain_step(plain, batch, count, share, installed.program.batch_draws)
        trained = cluster.do(ReadWeights([name for name, _ in plain.named_parameters()]))
    finally:
        cluster.shutdown()
    assert result.values == (loss,)
    for name, parameter in plain.named_parameters():
        assert torch.equal(torch.from_numpy(trained[name]), parameter.detach()), name
    assert plain.scale.grad is not None
    assert plain.scale.grad.abs().sum() > 0
