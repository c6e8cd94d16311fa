"""Experts compute their formulas, and their loss is that of the stated shares."""

from itertools import product

import pytest
import torch

from modelzoo.models.blocks.experts import Experts, load_balancing_loss
from modelzoo.models.blocks.layers import Routings
from modelzoo.models.blocks.transformer_config import ExpertsConfig
from modelzoo.models.gpt.config import GptConfig
from tests.support.errors import raises
from waferstream.core.errors import ConfigError

B, T, C = 2, 6, 16


@pytest.mark.parametrize("null", [0.0, 0.5])
@pytest.mark.parametrize("gated", [False, True])
def test_experts_equal_a_loop_over_tokens(gated: bool, null: float) -> None:
    """Each token through its two experts and the shared one, with the share of the null expert."""
    moe = ExpertsConfig(num_experts=4, top_k=2, num_shared_experts=1, null_expert_bias=null)
    config = GptConfig(hidden_size=C, num_heads=2, filter_size=24, moe=moe,
                       nonlinearity="swiglu" if gated else "gelu")  # fmt: skip
    layer = Experts(config, moe)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    x = torch.randn(B, T, C)
    found = layer(x).flatten(0, 1)
    assert layer.shared is not None
    for token, output in zip(x.flatten(0, 1), found, strict=True):
        assert layer.router is not None
        probabilities = layer.router(token).softmax(-1)
        best = probabilities.topk(2)
        expected = layer.shared(token)
        for weight, index in zip(best.values, best.indices, strict=True):
            inner = layer.up.weight[index] @ token
            inner = inner + layer.up.bias[index]  # type: ignore[index]
            if layer.gate is None:
                inner = torch.nn.functional.gelu(inner)
            else:
                gate = layer.gate.weight[index] @ token
                inner = torch.nn.functional.silu(gate + layer.gate.bias[index]) * inner  # type: ignore[index]
            out = layer.down.weight[index] @ inner + layer.down.bias[index]  # type: ignore[index]
            expected = expected + weight / (best.values.sum() + null) * out
        torch.testing.assert_close(output, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("algorithm", "top_k"), [("hash", 1), ("uniform", 2)])
def test_fixed_routing_equals_a_loop_over_tokens(
    algorithm: str, top_k: int, normalized: bool
) -> None:
    """By the number of a token, or by its place and those behind it, with equal weights."""
    moe = ExpertsConfig.model_validate(
        {"num_experts": 4, "top_k": top_k, "routing_algorithm": algorithm,
         "expert_weighting_normalization": normalized, "null_expert_bias": 0.5 * normalized},
    )  # fmt: skip
    config = GptConfig(hidden_size=C, num_heads=2, filter_size=24, moe=moe, use_ffn_bias=False)
    layer = Experts(config, moe)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    x, tokens = torch.randn(B, T, C), torch.randint(40, (B, T))
    found = layer(x, Routings(tokens))
    for sample, place in product(range(B), range(T)):
        first = int(tokens[sample, place]) if algorithm == "hash" else place
        outputs = [
            layer.down.weight[i] @ torch.nn.functional.gelu(layer.up.weight[i] @ x[sample, place])
            for i in ((first + each) % 4 for each in range(top_k))
        ]
        expected = sum(outputs) / top_k / (1.5 if normalized else 1.0)
        torch.testing.assert_close(found[sample, place], expected, atol=1e-4, rtol=1e-4)


def test_hash_needs_the_numbers_of_tokens() -> None:
    moe = ExpertsConfig(num_experts=4, routing_algorithm="hash")
    layer = Experts(GptConfig(hidden_size=C, num_heads=2, moe=moe), moe)
    with raises(ConfigError, "hash-without-tokens"):
        layer(torch.randn(B, T, C))


@pytest.mark.parametrize("first", [False, True])
def test_balanced_shares_choose_and_weigh_what_experts_read_or_return(first: bool) -> None:
    """Two steps of sinkhorn over the experts and over the tokens of a sequence, without gradient."""
    moe = ExpertsConfig(
        num_experts=4, router_selection_nonlinearity="sinkhorn", sinkhorn_n_iters=2,
        expert_weighting_nonlinearity="sigmoid", expert_weighting_normalization=False,
        probability_before_ffn=first,
    )  # fmt: skip
    config = GptConfig(hidden_size=C, num_heads=2, filter_size=24, moe=moe, use_ffn_bias=False)
    layer = Experts(config, moe)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    x = torch.randn(B, T, C)
    assert layer.router is not None
    scores = layer.router(x)
    shares = scores.detach()
    for _ in range(2):
        shares = shares.log_softmax(2)
        shares = shares.log_softmax(1)
    found = layer(x)
    for sample, place in product(range(B), range(T)):
        index = shares[sample, place].argmax()
        weight = scores[sample, place, index].sigmoid()
        read = x[sample, place] * (weight if first else 1.0)
        inner = torch.nn.functional.gelu(layer.up.weight[index] @ read)
        expected = layer.down.weight[index] @ inner * (1.0 if first else weight)
        torch.testing.assert_close(found[sample, place], expected, atol=1e-4, rtol=1e-4)


def test_balanced_experts_have_the_least_loss() -> None:
    """top_k where tokens spread evenly; more where one expert gets all, masked tokens aside."""
    even = torch.full((B, 4, 4), 0.25)
    one = torch.eye(4)[0].expand(B, 4, 4)
    mask = torch.ones(B, 4, dtype=torch.int64)
    assert load_balancing_loss([(even, torch.eye(4).expand(B, 4, 4))], mask).item() == 1.0
    assert load_balancing_loss([(one, one)], mask).item() == 4.0
    mask[:, 1:] = 0
    assert load_balancing_loss([(one, one)], mask).item() == 4.0
