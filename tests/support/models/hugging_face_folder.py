"""Folders as transformers writes them, with tiny random models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

CONTEXT = 80
"""More than a block of the cache."""

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<e>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_WORDS = "def import return self the a of in print for class if else not and é ü 日本 語 "
_SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": CONTEXT,
}  # fmt: skip
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip

_FULL, _WINDOWED = "full_attention", "sliding_attention"

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": _GPT,
    "gptj": {**_GPT, "rotary_dim": 4, "tie_word_embeddings": False},
    "llama": _SIZES,
    "llama-3": {**_SIZES, "rope_parameters": _LLAMA3, "tie_word_embeddings": True},
    "mistral": {**_SIZES, "sliding_window": None},
    "mistral-windowed": {**_SIZES, "sliding_window": 8},
    "mixtral": {**_SIZES, "num_local_experts": 4},
    "qwen3_moe": {
        **_SIZES,
        "head_dim": 16,
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
    },
    "phi3": {**_SIZES, "pad_token_id": 0, "sliding_window": 70, "partial_rotary_factor": 0.5},
    "gemma2": {
        **_SIZES,
        "head_dim": 16,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 20,
        "query_pre_attn_scalar": 9,
        "attn_logit_softcapping": 5.0,
    },
    "gpt_oss": {
        **_SIZES,
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 3,
        "sliding_window": 20,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 8.0,
            "truncate": False,
            "original_max_position_embeddings": 16,
        },
    },
    "gemma3_text": {
        **_SIZES,
        "num_hidden_layers": 3,
        "head_dim": 16,
        "sliding_window": 20,
        "query_pre_attn_scalar": 9,
        "layer_types": [_WINDOWED, _FULL, _WINDOWED],
        "rope_parameters": {
            _FULL: {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
            _WINDOWED: {"rope_type": "default", "rope_theta": 100.0},
        },
    },
    "qwen2": _SIZES,
    "qwen3": {**_SIZES, "head_dim": 16},
}
"""Names of cases, whose first part is the ``model_type``, to their configurations."""

OTHERS: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "seq_length": CONTEXT},
    "opt": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 8},
}
"""Those that are refused."""


def write_folder(
    folder: Path,
    case: str,
    *,
    dtype: torch.dtype = torch.float32,
    context: int = CONTEXT,
    template: str = TEMPLATE,
    words: Sequence[str] = (),
) -> Any:
    """Write a folder; return the model of transformers.

    Args:
        folder: Where to.
        case: A name of a family.
        dtype: Of the weights.
        context: The most tokens, where the family states them so.
        template: That of chats.
        words: More tokens that are words; every other one is no text.
    """
    from tokenizers import AddedToken
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken(word, special=bool(i % 2)) for i, word in enumerate(words)])
    end = tokenizer.token_to_id("<e>")
    about = {
        "vocab_size": tokenizer.get_vocab_size() + 3,
        "bos_token_id": end,
        "eos_token_id": end,
    }
    values = dict({**FAMILIES, **OTHERS}[case])
    if "max_position_embeddings" in values:
        values["max_position_embeddings"] = context
    torch.manual_seed(0)
    config = AutoConfig.for_model(case.partition("-")[0], **about, **values)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model = model.to(dtype)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    beside = {"chat_template": template, "eos_token": {"content": "<e>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(beside))
    return model


def make_tokenizer() -> Any:
    """Return a tokenizer by pairs of bytes, with words for roles."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<e>", "<|user|>", "<|assistant|>", "<|system|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_WORDS * 3], trainer)
    return tokenizer
