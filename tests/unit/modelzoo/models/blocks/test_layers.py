"""Transformer layers compute their formulas."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from modelzoo.models.blocks.attention import Attention
from modelzoo.models.blocks.layers import FeedForward, norm, position_embedding
from modelzoo.models.blocks.residual_layers import transformer_layers
from modelzoo.models.blocks.rotary import rotate
from modelzoo.models.blocks.transformer_config import ExtraAttentionParams
from modelzoo.models.gpt.config import GptConfig, GptjConfig

HIDDEN, HEADS, LENGTH = 32, 4, 6
CONFIG = GptConfig(
    hidden_size=HIDDEN,
    num_heads=HEADS,
    filter_size=48,
    position_embedding_type="rotary",
    attention_dropout_rate=0.0,
)


def config_with(**changes: object) -> GptConfig:
    return CONFIG.model_copy(update=changes)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["scaled_dot_product", "dot_product"])
def test_attention_matches_the_formula(kind: str) -> None:
    """softmax(mask(Q K^T s)) V per head, s = 1/sqrt(head_dim) only if scaled (Vaswani 2017, eq. 1)."""
    attention = Attention(config_with(attention_type=kind))
    x = random(2, LENGTH, HIDDEN)
    query, key, value = (
        projection(x).view(2, LENGTH, HEADS, -1).transpose(1, 2)
        for projection in (attention.query, attention.key, attention.value)
    )
    scale = 1 / math.sqrt(HIDDEN // HEADS) if kind == "scaled_dot_product" else 1.0
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    scores = (query @ key.mT * scale).masked_fill(future, -math.inf)
    mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(2, LENGTH, HIDDEN)
    torch.testing.assert_close(attention(x, None), attention.output(mixed))


def test_grouped_query_attention_shares_keys_and_values() -> None:
    """Two groups are full attention whose key and value heads are equal in pairs."""
    grouped = Attention(
        config_with(
            attention_module="multiquery_attention",
            extra_attention_params=ExtraAttentionParams(num_kv_groups=2),
        )
    )
    full = Attention(CONFIG)
    state = grouped.state_dict()
    for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
        heads = state[name].unflatten(0, (2, -1))
        state[name] = heads.repeat_interleave(2, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    x = random(2, LENGTH, HIDDEN)
    _, rotation = position_embedding(CONFIG)(x)
    torch.testing.assert_close(grouped(x, rotation), full(x, rotation))


@pytest.mark.parametrize("rotary_dim", [2, 4, 8])
def test_rotate_depends_on_distance_only(rotary_dim: int) -> None:
    """The product of a query and a key depends on their distance only (RoFormer, eq. 16)."""
    same_everywhere = random(2, 1, 1, HIDDEN // HEADS).expand(2, LENGTH, 1, -1)
    config = config_with(rotary_dim=rotary_dim)
    _, rotation = position_embedding(config)(random(1, LENGTH, HIDDEN))
    query, key = rotate(same_everywhere, rotation).squeeze(2)
    products = query @ key.T
    torch.testing.assert_close(products[1:, 1:], products[:-1, :-1])
    assert not torch.allclose(products[1:], products[:-1])


def test_rotary_position_is_precise_in_bf16() -> None:
    """Angles of far positions are those of fp32: only the result is rounded."""
    far = torch.empty(1, 1000, HIDDEN)
    _, (cos, sin) = position_embedding(CONFIG)(far)
    _, (cos_bf16, sin_bf16) = position_embedding(CONFIG)(far.bfloat16())
    assert torch.equal(cos_bf16, cos.bfloat16())
    assert torch.equal(sin_bf16, sin.bfloat16())


@pytest.mark.parametrize(
    ("nonlinearity", "function"),
    [
        ("gelu", nn.functional.gelu),
        ("gelu_new", nn.GELU(approximate="tanh")),
        ("relu", nn.functional.relu),
    ],
)
def test_feed_forward_matches_the_formula(nonlinearity: str, function: nn.Module) -> None:
    """Up, nonlinearity, down."""
    layer = FeedForward(config_with(nonlinearity=nonlinearity))
    x = random(2, LENGTH, HIDDEN)
    torch.testing.assert_close(layer(x), layer.down(function(layer.up(x))))


def test_swiglu_matches_the_formula() -> None:
    """(silu(x W) * x V) W2 (Shazeer 2020, eq. 6)."""
    layer = FeedForward(config_with(nonlinearity="swiglu", use_ffn_bias=False))
    x = random(2, LENGTH, HIDDEN)
    assert layer.gate is not None
    gate = x @ layer.gate.weight.T
    expected = (gate * gate.sigmoid() * (x @ layer.up.weight.T)) @ layer.down.weight.T
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("untied", [False, True])
def test_parallel_layer_matches_the_formula(untied: bool) -> None:
    """x + A(N x) + F(N x), with one norm or, as in GPT-NeoX, two."""
    config = GptjConfig(
        hidden_size=HIDDEN,
        num_heads=HEADS,
        filter_size=48,
        rotary_dim=4,
        use_untied_layer_norm=untied,
        num_hidden_layers=1,
    )
    layer: Any = transformer_layers(config).eval()[0]
    x = random(2, LENGTH, HIDDEN)
    _, rotation = position_embedding(config)(x)
    other_norm = layer.feed_forward_norm if untied else layer.attention_norm
    nn.init.constant_(other_norm.weight, 2.0)
    attended = layer.attention(layer.attention_norm(x), rotation)
    fed = layer.feed_forward(other_norm(x))
    torch.testing.assert_close(layer(x, rotation), x + attended + fed)


def test_norm_follows_the_configuration() -> None:
    """Kind and epsilon."""
    assert isinstance(norm(CONFIG), nn.LayerNorm)
    rms = norm(config_with(norm_type="rmsnorm", layer_norm_epsilon=1e-3))
    assert isinstance(rms, nn.RMSNorm)
    assert rms.eps == 1e-3
