"""Means over labels are means over the batch, for every cluster and micro-batch size."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cstorch
from cstorch import backends
from scripts import reference_loop
from tests.support.models.masked_tokens import Masked, gpt_digest
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend
from tests.support.runs.tiny_training import GPT, Shape, init_config

ROWS, TOKENS, CLASSES = 12, 6, 5
Batch = dict[str, torch.Tensor]


def labelled(seed: int, keep: Sequence[int]) -> Batch:
    """Return a batch whose sample i has ``keep[i]`` labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (ROWS, TOKENS), generator=generator)
    ignored = torch.arange(TOKENS) >= torch.tensor(keep)[:, None]
    x = torch.randn(ROWS, TOKENS, 4, generator=generator)
    return {"x": x, "labels": labels.masked_fill(ignored, -100)}


UNEVEN = [6, 1, 0, 0, 3, 6, 2, 0, 1, 5, 4, 1]  # samples 2 and 3 are a micro-batch without labels
BATCHES = [labelled(step, UNEVEN[step:] + UNEVEN[:step]) for step in range(3)]


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(4, 8), nn.Linear(8, CLASSES)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = self.head(torch.tanh(self.hidden(x)))
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


def train(
    batches: Sequence[Batch], num_csx: int, size: int, net: nn.Module | None = None
) -> tuple[list[float], str, Batch]:
    """Train on a cluster; return losses, digest and weights."""
    with running_backend(Shape(num_csx, 2, 2)) as backend:
        backends.csx.performance.micro_batch_size = size
        model = cstorch.compile(net or Classifier(), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.5)

        @cstorch.trace
        def step(batch: Batch) -> torch.Tensor:
            loss: torch.Tensor = model(**batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        seen = losses(step, executor(len(batches), loader(lambda: batches)))
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        return seen, backend.weights_digest(), weights


def plain(batches: Sequence[Batch]) -> tuple[list[float], dict[str, nn.Parameter]]:
    """Run a plain loop with one loss over each whole batch."""
    model, seen = Classifier(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen, dict(model.named_parameters())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 12])
def test_uneven_labels_train_as_one_mean_over_the_batch(size: int) -> None:
    """For every micro-batch size, losses and weights are those of the whole batch."""
    seen, _, weights = train(BATCHES, 1, size)
    expected, model = plain(BATCHES)
    torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-6)
    for name, weight in weights.items():
        torch.testing.assert_close(weight, model[name].detach(), rtol=1e-4, atol=1e-6)


def test_uneven_labels_do_not_depend_on_the_cluster() -> None:
    """Losses and weights are bitwise equal for 1 to 4 systems."""
    first = train(BATCHES, 1, 2)[:2]
    assert all(train(BATCHES, num_csx, 2)[:2] == first for num_csx in (2, 3, 4))


def test_batch_without_labels_changes_nothing() -> None:
    """Its loss is 0, and a step of plain gradient descent keeps the weights."""
    empty = labelled(9, [0] * ROWS)
    seen, digest, _ = train([BATCHES[0], empty], 2, 2)
    assert seen[1] == 0.0
    assert digest == train(BATCHES[:1], 2, 2)[1]


@pytest.mark.parametrize(
    "precision",
    [
        {"enabled": False},
        {"max_gradient_norm": 0.5},
        {"fp16_type": "float16", "loss_scaling_factor": 1024.0},
    ],
    ids=["fp32", "bf16", "fp16-scaled"],
)
def test_masked_tokens_equal_the_reference_loop(precision: dict[str, Any]) -> None:
    """Bit for bit, on 1, 3 and 4 systems."""
    init = init_config(GPT | {"num_hidden_layers": 1}, precision=precision)
    masked = Masked()
    batches = [masked.batch(step) for step in range(3)]
    expected = reference_loop.weights_sha256(reference_loop.train(init, batches, 22))
    for num_csx in (1, 3, 4):
        assert gpt_digest(init, num_csx) == expected
