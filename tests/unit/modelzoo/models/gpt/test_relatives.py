"""Models of transformers give the same scores from the same weights, family by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from modelzoo.converters.llama_families import LLAMA
from modelzoo.converters.weights import Rule, rule, to_ours
from modelzoo.models.gpt.model import GptModel
from tests.support.models.tiny_models import NO_DROPOUT
from tests.support.models.transformers_llama import LLAMA_KEYS, OUR_SIZES, THEIR_SIZES, theirs
from waferstream.workload.models import build_model, model_config


def assert_same_scores(
    model: Any,
    section: Mapping[str, Any],
    rules: Sequence[Rule] = LLAMA.rules,
    length: int = 48,
) -> None:
    complete = model_config(section).model_dump(by_alias=True)
    weights = {name: value for name, value in model.state_dict().items() if "inv_freq" not in name}
    ours = build_model(section, seed=0).eval()
    assert isinstance(ours, GptModel)
    ours.load_state_dict(to_ours(rules, weights, complete), strict=False)
    tokens = torch.randint(40, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ours.logits(tokens), model(tokens).logits, atol=2e-4, rtol=1e-4)


ROPE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama3": (
        {"factor": 8.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0},
        {"pos_scaling_factor": 8.0, "pos_scaling_extra_args": {
            "original_max_position_embeddings": 16, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0}},
    ),
    "linear": ({"factor": 4.0}, {"pos_scaling_factor": 4.0}),
    "yarn": (
        {"factor": 4.0, "original_max_position_embeddings": 16},
        {"pos_scaling_factor": 4.0,
         "pos_scaling_extra_args": {"original_max_position_embeddings": 16}},
    ),
    "longrope": (
        {"factor": 4.0, "original_max_position_embeddings": 16,
         "short_factor": [1.0] * 4, "long_factor": [1.0, 1.5, 2.0, 4.0]},
        {"pos_scaling_extra_args": {"original_max_position_embeddings": 16,
                                    "long_factor": [1.0, 1.5, 2.0, 4.0]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ROPE)
def test_scaled_rotation_equals_that_of_transformers(kind: str) -> None:
    """LLaMA 3.1, Position Interpolation, YaRN and LongRoPE, on longer sequences than before."""
    rope, keys = ROPE[kind]
    parameters = {"rope_type": kind, "rope_theta": 100.0, **rope}
    model = theirs("LlamaForCausalLM", **THEIR_SIZES | {"rope_parameters": parameters})
    section = {**LLAMA_KEYS, "rope_theta": 100.0, "pos_scaling_type": kind, **keys}
    assert_same_scores(model, section)


def test_sliding_window_equals_that_of_mistral() -> None:
    """A query reads itself and the keys before it, so many in all."""
    model = theirs("MistralForCausalLM", **THEIR_SIZES, sliding_window=5)
    assert_same_scores(model, {**LLAMA_KEYS, "attention_sliding_window_length": 5})


def test_experts_equal_those_of_mixtral() -> None:
    """Two of four experts for each token, their weights normalized."""
    model = theirs("MixtralForCausalLM", **THEIR_SIZES, num_local_experts=4, num_experts_per_tok=2)
    experts = "model.layers.{i}.mlp.experts"
    rules = (
        *(each for each in LLAMA.rules if ".mlp." not in each.theirs),
        rule("model.layers.{i}.mlp.gate.weight", "decoder.{i}.feed_forward.router.weight"),
        rule(f"{experts}.gate_proj", "decoder.{i}.feed_forward.gate.weight"),
        rule(f"{experts}.up_proj", "decoder.{i}.feed_forward.up.weight"),
        rule(f"{experts}.down_proj", "decoder.{i}.feed_forward.down.weight"),
    )
    state = model.state_dict()
    for name in [name for name in state if name.endswith("gate_up_proj")]:
        gate, up = state.pop(name).chunk(2, dim=1)
        state |= {name.replace("gate_up", "gate"): gate, name.replace("gate_up", "up"): up}
    model.state_dict = lambda: state
    section = {**LLAMA_KEYS, "name": "mixtral", "moe": {"num_experts": 4, "top_k": 2}}
    assert_same_scores(model, section, rules)


def test_norms_and_caps_equal_those_of_gemma() -> None:
    """Sandwiched norms, capped scores, every other layer with a window, gates of GELU."""
    model = theirs(
        "Gemma2ForCausalLM", **THEIR_SIZES | {"tie_word_embeddings": True}, head_dim=16,
        sliding_window=5, attn_logit_softcapping=5.0, final_logit_softcapping=3.0,
        query_pre_attn_scalar=9, hidden_activation="gelu",
    )  # fmt: skip
    layer, ours = "model.layers.{i}", "decoder.{i}"
    norms = (
        rule(f"{layer}.post_attention_layernorm.weight", f"{ours}.attention_output_norm.weight"),
        rule(f"{layer}.pre_feedforward_layernorm.weight", f"{ours}.feed_forward_norm.weight"),
        rule(
            f"{layer}.post_feedforward_layernorm.weight", f"{ours}.feed_forward_output_norm.weight"
        ),
    )
    state = {n: w + 1 if "norm" in n else w for n, w in model.state_dict().items()}
    model.state_dict = lambda: state
    section = {
        **LLAMA_KEYS,
        "name": "gemma2",
        "share_embedding_weights": True,
        "attention_inner_dim": 64,
        "nonlinearity": "geglu",
        "norm_first_sandwich": True,
        "embeddings_scale": 32**0.5,
        "attention_logits_alpha": 4 / 3,
        "attention_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
        "attention_sliding_window_length": 5,
        "sliding_window_every_other_decoder_layer": True,
        "sliding_window_every_other_decoder_layer_pattern": "sliding_window_first",
    }
    plain = tuple(each for each in LLAMA.rules if "post_attention" not in each.theirs)
    assert_same_scores(model, section, (*plain, *norms))


@pytest.mark.parametrize("heads", [4, 6])
def test_alibi_equals_that_of_mpt(heads: int) -> None:
    """Also where the number of heads is no power of two."""
    model = theirs(
        "MptForCausalLM", vocab_size=40, d_model=48, n_layers=3, n_heads=heads, max_seq_len=64,
        expansion_ratio=4, tie_word_embeddings=True,
    )  # fmt: skip
    block, ours = "transformer.blocks.{i}", "decoder.{i}"
    rules = (
        rule("transformer.wte.weight", "embedding.weight"),
        rule(f"{block}.norm_1.weight", f"{ours}.attention_norm.weight"),
        rule(f"{block}.attn.Wqkv.weight", *(f"{ours}.attention.{part}.weight" for part in ("query", "key", "value"))),
        rule(f"{block}.attn.out_proj.weight", f"{ours}.attention.output.weight"),
        rule(f"{block}.norm_2.weight", f"{ours}.feed_forward_norm.weight"),
        rule(f"{block}.ffn.up_proj.weight", f"{ours}.feed_forward.up.weight"),
        rule(f"{block}.ffn.down_proj.weight", f"{ours}.feed_forward.down.weight"),
        rule("transformer.norm_f.weight", "norm.weight"),
        rule("lm_head.weight", "head.weight"),
    )  # fmt: skip
    section = {
        **OUR_SIZES, **NO_DROPOUT, "name": "bloom", "hidden_size": 48, "num_heads": heads,
        "filter_size": 192, "position_embedding_type": "alibi",
        "use_projection_bias_in_attention": False, "use_ffn_bias_in_attention": False,
        "use_ffn_bias": False,
    }  # fmt: skip
    complete = model_config(section).model_dump(by_alias=True)
    biases = [n for n in build_model(section, 0).state_dict() if n.endswith("norm.bias")]
    extra = tuple(rule(name, name) for name in biases)
    state = {**model.state_dict(), **{name: torch.zeros(48) for name in biases}}
    model.state_dict = lambda: state
    assert complete["position_embedding_type"] == "alibi"
    assert_same_scores(model, section, (*rules, *extra))
