"""Trained models are pruned at once, layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from cstorch.sparse.matrix_pruning import pruned_matrix
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


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
