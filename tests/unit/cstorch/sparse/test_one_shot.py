"""Trained models are pruned at once, layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from cstorch.sparse.one_shot import DAMPING, pruned_matrix
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.sparsity.spec import kept_of


class TwoLayers(nn.Module):
    """Layers that run in another order than they are declared, and a table that is shared."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(12, 4)
        self.first = nn.Linear(6, 12)
        self.embedding = nn.Embedding(9, 6)
        self.dropout = nn.Dropout(0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (B, 4) outputs of (B,) tokens."""
        hidden = self.dropout(torch.relu(self.first(self.embedding(tokens))))
        found: torch.Tensor = self.last(hidden)
        return found


@pytest.fixture
def model() -> TwoLayers:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return TwoLayers()


BATCHES = [torch.arange(9), torch.tensor([3, 1, 4])]


def test_each_layer_sees_activations_of_pruned_ones(model: TwoLayers) -> None:
    inputs = model.embedding(torch.cat(BATCHES)).detach().double()
    first, last = model.first.weight.detach().clone(), model.last.weight.detach().clone()
    masks = cstorch.sparse.prune_one_shot(model, iter(BATCHES), 0.5)
    assert list(masks) == ["first.weight", "last.weight"]
    assert model.training
    expected, mask = pruned_matrix(first, inputs.t() @ inputs, 0.5)
    assert torch.equal(masks["first.weight"], mask)
    torch.testing.assert_close(model.first.weight.detach(), expected.float())
    hidden = functional.relu(model.first(inputs.float())).detach().double()
    expected, mask = pruned_matrix(last, hidden.t() @ hidden, 0.5)
    torch.testing.assert_close(model.last.weight.detach(), expected.float())
    assert torch.equal(masks["last.weight"], model.last.weight != 0)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_filter_selects_and_forward_runs_the_model(model: TwoLayers) -> None:
    last = model.last.weight.detach().clone()
    masks = cstorch.sparse.prune_one_shot(
        model,
        [{"tokens": BATCHES[0]}],
        0.75,
        forward=lambda batch: model(batch["tokens"]),
        param_filter=lambda name, _: name == "first.weight",
    )
    assert [*masks] == ["first.weight"]
    assert int(masks["first.weight"].sum()) == 18
    assert torch.equal(model.last.weight, last)


def test_weight_of_two_layers_gets_the_inputs_of_both() -> None:
    one, two = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    two.weight = one.weight
    weight, inputs = one.weight.detach().clone(), torch.randn(7, 4)
    seen = torch.cat([inputs, inputs @ weight.t()]).double()
    cstorch.sparse.prune_one_shot(nn.Sequential(one, two), [inputs], 0.5)
    expected, _ = pruned_matrix(weight, seen.t() @ seen, 0.5)
    torch.testing.assert_close(one.weight.detach(), expected.float())


Change = Callable[[TwoLayers], object]
REFUSED: dict[str, tuple[str, dict[str, object], Change]] = {
    "share": ("out-of-range", {"sparsity": 1.5}, lambda model: None),
    "filter": (
        "sparsity-filter-matches-nothing",
        {"param_filter": lambda name, _: name == "none"},
        lambda model: None,
    ),
    "table": (
        "one-shot-weight-unfit",
        {"param_filter": lambda name, _: "embedding" in name},
        lambda model: None,
    ),
    "bias": (
        "one-shot-weight-unfit",
        {"param_filter": lambda name, _: name == "first.bias"},
        lambda model: None,
    ),
    "meta": ("one-shot-weight-unfit", {}, lambda model: model.to("meta")),
    "no batch": ("one-shot-weight-not-reached", {"batches": []}, lambda model: None),
    "unused": (
        "one-shot-weight-not-reached",
        {},
        lambda model: model.add_module("unused", nn.Linear(2, 2)),
    ),
    "not finite": (
        "calibration-not-finite",
        {},
        lambda model: model.embedding.weight.data.fill_(torch.nan),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_pruned_is_refused(case: str, model: TwoLayers) -> None:
    code, changed, change = REFUSED[case]
    change(model)
    with raises(ConfigError, code):
        cstorch.sparse.prune_one_shot(
            **{"model": model, "batches": BATCHES, "sparsity": 0.5} | changed  # type: ignore[arg-type]
        )


def problem(rows: int, columns: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a weight, and the sum of x x^T over inputs whose features depend on each other."""
    random = torch.Generator().manual_seed(seed)
    mixed = torch.randn(columns, columns, generator=random, dtype=torch.float64)
    inputs = torch.randn(3 * columns, columns, generator=random, dtype=torch.float64) @ mixed
    return torch.randn(rows, columns, generator=random), inputs.t() @ inputs


def error_of(change: torch.Tensor, gram: torch.Tensor) -> float:
    """Return the squared change of all outputs."""
    return float(((change @ gram) * change).sum())


def without(row: torch.Tensor, column: int, hessian: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Set one weight to zero; return the least error by changes of those behind it, and the row.

    By the normal equations of these columns alone.
    """
    change = torch.zeros_like(row)
    change[column] = -row[column]
    behind = slice(column + 1, None)
    if column + 1 < len(row):
        right = -hessian[behind, column] * change[column]
        change[behind] = torch.linalg.solve(hessian[behind, behind], right)
    return error_of(change[None], hessian), row + change


def test_one_zero_is_that_of_exhaustive_search() -> None:
    """Each weight is tried, with the exact solution for the columns behind it."""
    for seed in range(4):
        weight, gram = problem(1, 8, seed)
        hessian = gram + DAMPING * gram.diagonal().mean() * torch.eye(8, dtype=gram.dtype)
        tried = [without(weight[0].double(), column, hessian) for column in range(8)]
        best = min(range(8), key=lambda column: tried[column][0])
        pruned, mask = pruned_matrix(weight, gram, 1 / 8)
        assert (~mask[0]).nonzero().tolist() == [[best]]
        torch.testing.assert_close(pruned[0], tried[best][1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("block_columns", [3, 12])
def test_weights_are_those_of_one_exact_step_per_zero(block_columns: int) -> None:
    """From left to right, whatever the block of columns whose errors are added up."""
    weight, gram = problem(5, 12)
    hessian = gram + DAMPING * gram.diagonal().mean() * torch.eye(12, dtype=gram.dtype)
    pruned, mask = pruned_matrix(weight, gram, 0.5, block_columns)
    for row, kept, found in zip(weight.double(), mask, pruned, strict=True):
        for column in (~kept).nonzero().flatten().tolist():
            _, row = without(row, column, hessian)  # noqa: PLW2901
        torch.testing.assert_close(found, row.masked_fill(~kept, 0.0), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("share", "bound"), [(0.25, 0.2), (0.5, 0.25), (0.75, 0.5), (0.9, 0.95)])
def test_outputs_change_less_than_by_magnitude(share: float, bound: float) -> None:
    """On inputs with a few common factors, as activations have; the number of zeros is exact."""
    for seed in range(5):
        random = torch.Generator().manual_seed(seed)
        factors, mixing, own = (
            torch.randn(*shape, generator=random, dtype=torch.float64)
            for shape in ((200, 10), (10, 64), (200, 64))
        )
        weight, inputs = torch.randn(16, 64, generator=random), factors @ mixing + 0.3 * own
        gram, kept = inputs.t() @ inputs, kept_of(weight.numel(), share)
        pruned, mask = pruned_matrix(weight, gram, share, block_columns=16)
        assert int(mask.sum()) == int((pruned != 0).sum()) == kept
        smallest = weight.abs().flatten().argsort()[: weight.numel() - kept]
        by_magnitude = weight.double().flatten().index_fill(0, smallest, 0.0).view_as(weight)
        found = error_of(pruned - weight, gram) / error_of(by_magnitude - weight, gram)
        assert found < bound


def test_extreme_shares_and_inputs() -> None:
    weight, gram = problem(3, 5)
    assert torch.equal(pruned_matrix(weight, gram, 0.0)[0], weight.double())
    assert not pruned_matrix(weight, gram, 1.0)[0].any()
    by_magnitude, mask = pruned_matrix(weight, torch.zeros_like(gram), 0.6)
    assert torch.equal(by_magnitude[mask], weight.double()[mask])  # inputs are zero: all cost alike
    assert weight.abs()[mask].min() > weight.abs()[~mask].max()
