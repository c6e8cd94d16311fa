"""Every way to write a loss gives the loss of the whole batch, or is refused with its line."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, loader, losses, running_backend
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import ApplianceCompilationError, DataError

ROWS, TOKENS, CLASSES = 8, 6, 5
Batch = dict[str, torch.Tensor]
Loss = Callable[[torch.Tensor, Batch, nn.Module], torch.Tensor]


def batch_of(seed: int) -> Batch:
    """Return a batch with unequal numbers of labels; some samples have none, few are positive."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([6, 5, 0, 0, 2, 6, 1, 3]).roll(seed)
    mask = torch.arange(TOKENS)[None] < lengths[:, None]
    labels = torch.randint(CLASSES, (ROWS, TOKENS), generator=draw)
    return {
        "x": torch.randn(ROWS, TOKENS, 4, generator=draw),
        "labels": labels.masked_fill(~mask, -100),
        "mask": mask,
        "positive": (torch.arange(ROWS) % 5 == seed).float(),
        "weight": torch.rand(ROWS, generator=draw) + 0.1,
        "target": torch.randn(ROWS, generator=draw),
    }


BATCHES = [batch_of(step) for step in range(3)]


class Tagger(nn.Module):
    """Scores of classes for each token, and the loss of a rule."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.hidden, self.head, self.loss = nn.Linear(4, 8), nn.Linear(8, CLASSES), loss
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.loss(self.head(torch.tanh(self.hidden(batch["x"]))), batch, self)


def each(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the loss of each token, 0 where it is ignored."""
    flat = F.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    return flat.view(rows_of(batch), TOKENS)


def rows_of(batch: Batch) -> int:
    return batch["x"].shape[0]


def mean(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten())


def per_sample(scores: torch.Tensor) -> torch.Tensor:
    return scores.square().mean((1, 2))


def positive(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(
        scores.mean((1, 2)), batch["positive"], reduction="none"
    )


def in_place(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Loss:
    return lambda s, b, _: change(mean(s, b), s)


def added(loss: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    loss += 0.1 * scores.square().mean()
    return loss


def divided(loss: torch.Tensor, _scores: torch.Tensor) -> torch.Tensor:
    loss /= 4
    return loss


def multiplied(loss: torch.Tensor, _scores: torch.Tensor) -> torch.Tensor:
    loss *= 0.5
    return loss


def written(loss: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    both = torch.zeros(2)
    both[0] = loss
    both[1] = scores.square().mean()
    return both.sum()


def places(order: torch.Tensor) -> torch.Tensor:
    """Return the place of each sample in an order."""
    back = torch.empty_like(order)
    back[order] = torch.arange(order.size(0))
    return back


def ordered(scores: torch.Tensor) -> torch.Tensor:
    """Return the samples in the order of their classes."""
    return torch.sort(scores.argmax(-1)[:, 0]).indices


def without_first(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return scores where that of each sample's first label is 0."""
    changed = scores.clone()
    changed[torch.arange(rows_of(batch)), 0, batch["labels"][:, 0].clamp(min=0)] = 0.0
    return changed


MEANS: dict[str, Loss] = {
    "quotient of sums": lambda s, b, _: (each(s, b) * b["mask"]).sum() / b["mask"].sum(),
    "quotient of means": lambda s, b, _: (
        (each(s, b) * b["mask"]).mean() / b["mask"].float().mean()
    ),
    "divided before the sum": lambda s, b, _: (each(s, b) * b["mask"] / b["mask"].sum()).sum(),
    "reciprocal": lambda s, b, _: each(s, b).sum() * (1.0 / b["mask"].sum()),
    "power": lambda s, b, _: each(s, b).sum() * b["mask"].sum().float().pow(-1),
    "exponential": lambda s, b, _: each(s, b).sum() * torch.exp(-torch.log(b["mask"].sum())),
    "all minus padding": lambda s, b, _: (
        each(s, b).sum() / (b["mask"].numel() - (~b["mask"]).sum())
    ),
    "count plus one": lambda s, b, _: each(s, b).sum() / (b["mask"].sum() + 1),
    "norm as a count": lambda s, b, _: each(s, b).sum() / b["mask"].float().norm().square(),
    "weights over their sum": lambda s, b, _: (
        per_sample(s) * (b["weight"] / b["weight"].sum())
    ).sum(),
    "weights over their mean": lambda s, b, _: (
        per_sample(s) * (b["weight"] / b["weight"].mean())
    ).mean(),
    "softmax of weights": lambda s, b, _: (per_sample(s) * b["weight"].softmax(0)).sum(),
    "standardized targets": lambda s, b, _: (
        s.mean((1, 2)) - (b["target"] - b["target"].mean()) / b["target"].std()
    ).square().mean(),
    "longest of the batch": lambda s, b, _: each(s, b).sum() / (b["mask"].sum(1).max() * 8),
    "rank of a sample": lambda s, b, _: (
        per_sample(s) * torch.arange(1, rows_of(b) + 1)
    ).mean(),
    "picked by row": lambda s, b, _: (
        s[torch.arange(rows_of(b)), b["labels"][:, 0].clamp(min=0)].square().mean()
    ),
    "written by row": lambda s, b, _: mean(without_first(s, b), b),
    "put back in order": lambda s, b, _: mean(s[ordered(s)][places(ordered(s))], b),
}  # fmt: skip
SUMS: dict[str, Loss] = {
    "a number": lambda s, b, _: each(s, b).sum() / 16,
    "a factor": lambda s, b, _: 0.1 * per_sample(s).sum(),
    "the rows": lambda s, b, _: per_sample(s).sum() / rows_of(b),
    "the rows less one": lambda s, b, _: per_sample(s).sum() / (rows_of(b) + 1),
    "the rows before the sum": lambda s, b, _: (per_sample(s) / rows_of(b)).sum(),
    "a tensor of the rows": lambda s, b, _: per_sample(s).sum() / torch.full((), rows_of(b)),
    "a number of the batch": lambda s, b, _: each(s, b).sum() / b["mask"].sum().clamp(min=30),
    "reduction sum": lambda s, b, _: F.mse_loss(s.mean((1, 2)), b["target"], reduction="sum") / 7,
    "a product": lambda s, b, _: s.mean((1, 2)) @ b["target"] / 5,
    "a number added": lambda s, b, _: each(s, b).sum() / 16 + 0.5,
}
POSITIVES: dict[str, Loss] = {
    "clamped": lambda s, b, _: positive(s, b).sum() / b["positive"].sum().clamp(min=1),
    "maximum": lambda s, b, _: (
        positive(s, b).sum() / torch.maximum(b["positive"].sum(), torch.ones(()))
    ),
    "not clamped": lambda s, b, _: positive(s, b).sum() / (b["positive"].sum() + 1e-6),
    "focal": lambda s, b, _: (
        positive(s, b) * (1 - torch.exp(-positive(s, b))).square()
    ).sum() / b["positive"].sum().clamp(min=1),
}  # fmt: skip
TERMS: dict[str, Loss] = {
    "z-loss": lambda s, b, _: mean(s, b) + 0.01 * s.logsumexp(-1).square().mean(),
    "penalty": lambda s, b, m: (
        mean(s, b) + 0.01 * sum(p.square().sum() for p in m.parameters())
    ),
    "penalty of a sum": lambda s, b, m: (
        each(s, b).sum() / 16 + 0.01 * m.get_parameter("head.weight").square().sum()
    ),
    "two means over labels": lambda s, b, _: mean(s, b) + (
        F.cross_entropy(s[:, 0], b["labels"][:, 0].clamp(min=0), reduction="none")
        * b["positive"]
    ).sum() / b["positive"].sum().clamp(min=1),
    "mean and sum": lambda s, b, _: per_sample(s).mean() - 0.1 * s.mean((1, 2)).sum(),
    "a quotient and a mean": lambda s, b, _: (
        (each(s, b) * b["mask"]).sum() / b["mask"].sum() + per_sample(s).mean()
    ),
    "two heads": lambda s, b, _: 0.7 * mean(s, b) + F.mse_loss(s[:, 0, 0], b["target"]),
    "smoothed beside a term": lambda s, b, _: F.cross_entropy(
        s.flatten(0, 1), b["labels"].flatten(), label_smoothing=0.1
    ) + 0.1 * per_sample(s).mean(),
    "class weights beside a term": lambda s, b, _: F.cross_entropy(
        s.flatten(0, 1), b["labels"].flatten(), torch.arange(1.0, CLASSES + 1)
    ) + 0.1 * per_sample(s).mean(),
    "smoothed with class weights": lambda s, b, _: F.cross_entropy(
        s.flatten(0, 1),
        b["labels"].flatten(),
        torch.arange(1.0, CLASSES + 1),
        label_smoothing=0.1,
    ),
    "stacked": lambda s, b, _: torch.stack([mean(s, b), per_sample(s).mean()]).sum(),
    "mean of a list": lambda s, b, _: torch.stack([mean(s, b), per_sample(s).mean()]).mean(),
}  # fmt: skip
CHANGED: dict[str, Loss] = {
    "divided in place": in_place(divided),
    "multiplied in place": in_place(multiplied),
    "added in place": in_place(added),
    "written into a tensor": in_place(written),
    "mean": in_place(lambda loss, _: loss.mean()),
    "sum": in_place(lambda loss, _: loss.sum()),
    "view": in_place(lambda loss, _: loss.view(1).expand(3).mean()),
    "cast": in_place(lambda loss, _: loss.double().float()),
    "nan_to_num": in_place(lambda loss, _: torch.nan_to_num(loss)),
    "clamp": in_place(lambda loss, _: loss.clamp(min=0.0, max=50.0)),
    "where finite": in_place(
        lambda loss, _: torch.where(torch.isfinite(loss), loss, torch.zeros_like(loss))
    ),
    "clamp of a sum in place": lambda s, b, _: (each(s, b).sum() / 16).clamp_(max=50.0) / 2,
    "chosen by a number": in_place(lambda loss, s: torch.where(torch.tensor(True), loss, s.sum())),
}
KINDS = (MEANS, SUMS, POSITIVES, TERMS, CHANGED)
ALL = {name: loss for kind in KINDS for name, loss in kind.items()}
RELATED: dict[str, Loss] = {
    "scores between samples": lambda s, b, _: F.cross_entropy(
        s.flatten(1) @ s.flatten(1).T, torch.arange(rows_of(b))
    ),
    "distance from the mean": lambda s, b, _: (
        per_sample(s) - per_sample(s).mean()
    ).square().mean(),
    "root of a mean": lambda s, b, _: per_sample(s).mean().sqrt(),
    "standard deviation": lambda s, b, _: per_sample(s).std(),
    "product of means": lambda s, b, _: per_sample(s).mean() * s.mean(),
    "softmax over the batch": lambda s, b, _: (
        per_sample(s).softmax(0) * b["target"]
    ).sum(),
    "hardest samples": lambda s, b, _: per_sample(s).topk(1).values.mean(),
    "neighbours": lambda s, b, _: (s * s.roll(1, 0)).mean(),
    "first sample": lambda s, b, _: s[0].square().mean(),
    "balance of experts": lambda s, b, _: (
        s.softmax(-1).mean((0, 1)) * F.one_hot(s.argmax(-1), CLASSES).float().mean((0, 1))
    ).sum(),
    "numbers of rows that are put in order": lambda s, b, _: (
        places(ordered(s)) * per_sample(s)
    ).mean(),
    "rows in the order of the inputs": lambda s, b, _: (
        s.index_select(0, b["target"].argsort()) * s
    ).mean(),
    "numbers in the order of the inputs": lambda s, b, _: (
        per_sample(s).gather(0, b["target"].argsort()) * per_sample(s)
    ).mean(),
    "unlabelled count of the model": lambda s, b, _: (
        each(s, b) * (s.amax(-1) > 0)
    ).sum() / (s.amax(-1) > 0).sum().clamp(min=1),
}  # fmt: skip


def train(loss: Loss, size: int, num_csx: int = 1) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train on a cluster; return losses and weights."""
    with running_backend(Shape(num_csx, 2, 2)) as backend:
        backends.csx.performance.micro_batch_size = size
        model = cstorch.compile(Tagger(loss), backend)
        optimizer = cstorch.optim.SGD(model.parameters(), lr=0.1)

        @cstorch.trace
        def step(batch: Batch) -> torch.Tensor:
            value: torch.Tensor = model(batch)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            return value

        seen = losses(step, executor(len(BATCHES), loader(lambda: BATCHES)))
        return seen, {name: p.detach().clone() for name, p in model.named_parameters()}


def plain(loss: Loss) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train in a plain loop, with one loss for each batch."""
    model, seen = Tagger(loss), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in BATCHES:
        optimizer.zero_grad()
        value = model(batch)
        value.backward()
        optimizer.step()
        seen.append(value.item())
    return seen, {name: p.detach() for name, p in model.named_parameters()}


def losses_and_sizes() -> list[Any]:
    """Return every loss at both sizes; at the second one, two thirds of a kind are nightly."""
    daily = {name for kind in KINDS for name in list(kind)[::3]}
    return [
        pytest.param(name, size, marks=[] if size == 1 or name in daily else [pytest.mark.nightly])
        for size in (1, 3)
        for name in ALL
    ]


@pytest.mark.parametrize(("name", "size"), losses_and_sizes())
def test_loss_is_that_of_the_whole_batch(name: str, size: int) -> None:
    """Losses and weights are those of a plain loop, for micro-batches of a sample, and of 3 and 2."""
    (seen, weights), (expected, model) = train(ALL[name], size), plain(ALL[name])
    torch.testing.assert_close(seen, expected, rtol=2e-5, atol=1e-6)
    for parameter, weight in weights.items():
        torch.testing.assert_close(weight, model[parameter], rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_penalty_of_a_derivative_is_that_of_the_whole_batch() -> None:
    def loss(scores: torch.Tensor, batch: Batch, model: nn.Module) -> torch.Tensor:
        hidden = model.get_submodule("hidden")
        derivative = torch.func.jvp(hidden, (batch["x"],), (batch["x"].sin(),))[1]
        return mean(scores, batch) + derivative.square().mean()

    torch.testing.assert_close(train(loss, 1)[0], plain(loss)[0], rtol=2e-5, atol=1e-6)


def test_guard_that_takes_effect_ends_the_run() -> None:
    """A loss beyond the limit of a clamp has another gradient in plain PyTorch: none."""
    with raises(DataError, "loss-out-of-limits") as caught:
        train(lambda s, b, _: mean(s, b).clamp(max=0.1), 2)
    assert "step 1: clamp" in str(caught.value.where)


@pytest.mark.parametrize("name", RELATED)
def test_loss_that_relates_samples_is_refused(name: str) -> None:
    """The error names the user's line and a remedy, which works: one micro-batch."""
    with raises(ApplianceCompilationError, "loss-relates-samples") as caught:
        train(RELATED[name], 2)
    assert "test_whole_batch.py" in str(caught.value.where)
    seen, _ = train(RELATED[name], ROWS)
    torch.testing.assert_close(seen, plain(RELATED[name])[0], rtol=2e-5, atol=1e-6)
