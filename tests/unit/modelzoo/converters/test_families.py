"""Models of transformers and ours compute the same scores from converted weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from modelzoo.converters.families import DECODERS
from tests.support.errors import raises
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.workload.hugging_face import read_hf
from waferstream.workload.models import build_model

TOKENS: dict[str, Any] = {"vocab_size": 13, "bos_token_id": 1, "eos_token_id": 2}
GPT = {**TOKENS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
LLAMA = {
    **TOKENS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 8,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}
NOT_NEOX = {"num_key_value_heads", "rms_norm_eps", "rope_parameters"}
HALF_ROTATED = {"partial_rotary_factor": 0.5}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 4,
}
CASES = {
    "gpt2": GPT,
    "gptj": {**GPT, "rotary_dim": 4, "tie_word_embeddings": False},
    "gpt_neox": {
        **{key: value for key, value in LLAMA.items() if key not in NOT_NEOX},
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, **HALF_ROTATED},
        "tie_word_embeddings": False,
        "hidden_act": "gelu",
    },
    "bloom": {**TOKENS, "hidden_size": 16, "n_layer": 2, "n_head": 2, "seq_length": 8},
    "llama-3": {**LLAMA, "rope_parameters": LLAMA3_ROPE},
    "mistral": {**LLAMA, "sliding_window": 3, "tie_word_embeddings": False},
    "mixtral": {**LLAMA, "num_local_experts": 3, "tie_word_embeddings": False},
    "qwen3_moe": {
        **LLAMA,
        "head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 8,
    },
    "phi3": {
        **LLAMA,
        "sliding_window": 3,
        "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, **HALF_ROTATED},
        "tie_word_embeddings": False,
    },
    "gemma2": {
        **LLAMA,
        "head_dim": 8,
        "query_pre_attn_scalar": 9,
        "sliding_window": 3,
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "gpt_oss": {
        **LLAMA,
        "head_dim": 8,
        "num_local_experts": 3,
        "num_experts_per_tok": 2,
        "sliding_window": 3,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 4.0,
            "truncate": False,
            "original_max_position_embeddings": 16,
        },
    },
    "gemma3_text": {
        **LLAMA,
        "num_hidden_layers": 3,
        "head_dim": 8,
        "query_pre_attn_scalar": 9,
        "sliding_window": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    },
    "qwen2": LLAMA,
    "qwen3": {**LLAMA, "head_dim": 8},
    "llama": {**LLAMA, "head_dim": 6},
    "llama-tied": {**LLAMA, "num_key_value_heads": 4, "tie_word_embeddings": True},
}


def theirs(case: str) -> Any:
    """Return a model of transformers with random weights, biases too."""
    from transformers import AutoConfig, AutoModelForCausalLM

    family = case.split("-", maxsplit=1)[0]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **CASES[case])).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("case", CASES)
def test_converted_model_computes_the_same_scores(case: str, tmp_path: Path) -> None:
    """And converted back it is the same, bit for bit."""
    model = theirs(case)
    family = DECODERS[model.config.model_type]
    section = family.section(model.config.to_dict())
    model.save_pretrained(tmp_path)
    weights = read_hf(tmp_path)
    if section["share_embedding_weights"]:
        weights["lm_head.weight"] = model.lm_head.weight
    ours: Any = build_model(section, seed=0).eval()
    converted = family.to_ours(weights, section)
    ours.load_state_dict(converted)
    tokens = torch.arange(16).view(2, 8) % 13
    with torch.no_grad():
        expected = model(tokens).logits
        torch.testing.assert_close(ours.logits(tokens), expected, rtol=1e-5, atol=1e-5)
    back = family.to_theirs(ours.state_dict(), section)
    assert set(back) == set(weights)
    for name, weight in weights.items():
        rounding = 1e-6 if "norm" in name and "gemma" in family.model_type else 0.0  # 1 + w
        torch.testing.assert_close(back[name], weight, rtol=0, atol=rounding)


@pytest.mark.parametrize("case", ["gpt2", "gpt_neox", "llama"])
def test_files_of_earlier_releases_have_masks_and_shorter_names(case: str) -> None:
    """As those of openai-community/gpt2: ``h.0.attn.bias`` is a mask."""
    model = theirs(case)
    family = DECODERS[case]
    section = family.section(model.config.to_dict())
    weights = {n: w for n, w in model.state_dict().items() if not n.startswith(("lm", "embed_out"))}
    head = model.get_output_embeddings().weight
    start = next(iter(weights)).partition(".")[0]
    named = {**weights, "lm_head.weight": head, "embed_out.weight": head}
    named.pop("lm_head.weight" if case == "gpt_neox" else "embed_out.weight")
    early = {name.removeprefix(f"{start}."): weight for name, weight in weights.items()}
    early |= {"h.0.attn.bias": torch.ones(1), "layers.0.self_attn.rotary_emb.inv_freq": head}
    early |= {name: named[name] for name in named.keys() - weights.keys()}
    expected = family.to_ours(named, section)
    found = family.to_ours(early, section)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("case", CASES)
def test_file_says_what_differs_from_defaults_alone(case: str) -> None:
    """As transformers writes it; what is left out has transformers' value, not ours."""
    from transformers import AutoConfig

    kind = case.split("-", maxsplit=1)[0]
    left_out = {"max_position_embeddings", "n_positions", "rms_norm_eps"}
    left_out |= {"tie_word_embeddings", "attn_logit_softcapping", "final_logit_softcapping"}
    values = {key: value for key, value in CASES[case].items() if key not in left_out}
    config = AutoConfig.for_model(kind, **values)
    written = {**config.to_diff_dict(), "model_type": config.model_type}
    family = DECODERS[config.model_type]
    assert family.section(written) == family.section(config.to_dict())


@pytest.mark.parametrize("case", ["llama-3", "llama", "qwen2", "gpt_neox"])
def test_rotation_of_earlier_releases_is_the_same(case: str) -> None:
    """They wrote its scaling beside its base."""
    config = theirs(case).config.to_dict()
    family = DECODERS[config["model_type"]]
    rope = dict(config["rope_parameters"])
    base = "rotary_emb_base" if case == "gpt_neox" else "rope_theta"
    early = {**config, "rope_parameters": None, base: rope.pop("rope_theta")}
    early["rotary_pct"] = rope.pop("partial_rotary_factor", None)
    early["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    assert family.section(early) == family.section(config)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "gpt_neox"])
@pytest.mark.parametrize("name", ["type", "rope_type"])
def test_scaling_that_is_not_converted_is_refused(kind: str, name: str) -> None:
    """Also as earlier releases wrote it."""
    config = theirs(kind).config.to_dict()
    early = {**config, "rope_parameters": None, "rope_scaling": {name: "dynamic", "factor": 2.0}}
    with raises(ConfigError, "config-not-convertible"):
        DECODERS[kind].section(early)


@pytest.mark.parametrize("case", CASES)
def test_configuration_goes_there_and_back(case: str) -> None:
    config = theirs(case).config.to_dict()
    family = DECODERS[config["model_type"]]
    section = family.section(config)
    again = family.configuration(section)
    assert family.section(again) == section
    stated = {key: value for key, value in config.items() if value is not None}
    same = stated.keys() & again.keys() - {"architectures"}
    assert {key: again[key] for key in same} == {key: stated[key] for key in same}


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("gpt2", {"model_type": "bert"}),
        ("gpt2", {"activation_function": "tanh"}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}),
        ("gemma2", {"layer_types": ["full_attention", "chunked_attention"]}),
        ("llama", {"attention_bias": True}),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}),
        ("llama", {"logit_scale": 0.5}),
        ("gpt_oss", {"quantization_config": {"quant_method": "bitsandbytes"}}),
        ("gpt_oss", {"swiglu_limit": 3.0}),
        ("gpt_oss", {"num_hidden_layers": 10**9, "layer_types": None}),
        ("llama", {"rope_parameters": None, "rope_scaling": [1]}),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("qwen3_moe", {"mlp_only_layers": [0]}),
        ("phi3", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1.0}}),
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 9.0,
                    "factor": 2.0,
                    "original_max_position_embeddings": 8,
                    "attention_factor": 1.5,
                }
            },
        ),
    ],
)
def test_configuration_that_computes_something_else_is_refused(
    family: str, change: dict[str, Any]
) -> None:
    with raises(ConfigError, "config-not-convertible"):
        DECODERS[family].section({**CASES[family], "model_type": family, **change})


def test_weights_of_another_model_are_refused() -> None:
    weights = theirs("gpt2").state_dict()
    family = DECODERS["gpt2"]
    section = family.section({**GPT, "model_type": "gpt2"})
    for code, wrong in (
        ("unmatched-weights", {**weights, "score.weight": torch.zeros(1)}),
        ("no-such-tensor", {k: w for k, w in weights.items() if "wpe" not in k}),
        ("tensor-mismatch", {**weights, "transformer.ln_f.bias": torch.zeros(3)}),
    ):
        with raises(CheckpointError, code):
            family.to_ours(wrong, section)
    more = {**weights, "score.weight": torch.zeros(1)}
    assert "score.weight" not in family.matched(more, section)
