"""Experts compute their formulas, and their loss is that of the stated shares."""

import pytest
import torch

from modelzoo.models.blocks.experts import Experts, load_balancing_loss
from modelzoo.models.blocks.transformer_config import ExpertsConfig
from modelzoo.models.gpt.config import GptConfig

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


def test_balanced_experts_have_the_least_loss() -> None:
    """top_k where tokens spread evenly; more where one expert gets all, masked tokens aside."""
    even = torch.full((B, 4, 4), 0.25)
    one = torch.eye(4)[0].expand(B, 4, 4)
    mask = torch.ones(B, 4, dtype=torch.int64)
    assert load_balancing_loss([(even, torch.eye(4).expand(B, 4, 4))], mask).item() == 1.0
    assert load_balancing_loss([(one, one)], mask).item() == 4.0
    mask[:, 1:] = 0
    assert load_balancing_loss([(one, one)], mask).item() == 4.0
