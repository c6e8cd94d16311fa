"""One training step of a case of PyTorch, on a local cluster and in a plain loop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch

from appliance.elaboration.elaborate import ClusterSize
from tests.support.plain_torch.keyed_draws import KeyedDraws
from tests.support.plain_torch.torch_cases import Case, CaseModel
from tests.support.roles.local_machine import compile_model, installation, sgd, start
from wsc.compiler.compiled import Compiled

NUM_MICRO_BATCHES = 2
LEARNING_RATE = 0.1


@cache
def compiled(case: Case) -> Compiled:
    """Return the training step of a case."""
    return compile_model(case.model(), case.inputs(), NUM_MICRO_BATCHES)


def plain_step(model: CaseModel, batch: Mapping[str, torch.Tensor]) -> float:
    """Run one SGD step of a plain PyTorch loop; return the mean loss."""
    losses = []
    pieces = zip(*(tensor.chunk(NUM_MICRO_BATCHES) for tensor in batch.values()), strict=True)
    for index, piece in enumerate(pieces):
        with KeyedDraws(index):
            loss = model(**dict(zip(batch, piece, strict=True)))
            (loss / NUM_MICRO_BATCHES).backward()
        losses.append(loss.item())
    torch.optim.SGD(model.parameters(), lr=LEARNING_RATE).step()
    return sum(losses) / NUM_MICRO_BATCHES


def check_step(case: Case) -> None:
    """Compare the loss and the weights after one step, bit for bit."""
    batch, model, plain = case.inputs(), case.model(), case.model()
    size = ClusterSize(1)
    installed = installation(compiled(case), lambda: [batch], sgd(model, LEARNING_RATE), size)
    cluster = start(installed, model, size)
    try:
        (result,) = cluster.run("train", 1, 1)
        loss = plain_step(plain, batch)
        trained = cluster.masters([name for name, _ in plain.named_parameters()])
    finally:
        cluster.shutdown()
    assert result.values == (loss,)
    for name, parameter in plain.named_parameters():
        assert torch.equal(torch.from_numpy(trained[name]), parameter.detach()), name
    assert plain.scale.grad is not None
    assert plain.scale.grad.abs().sum() > 0
