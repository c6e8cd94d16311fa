"""Decoders that others have published, by name: shapes from the models' own configuration files.

Which draft a service runs is seldom published. The rule here: the smallest sibling that shares the
tokenizer, where it has a tenth of the weights or less; else the layer that a model brings to
predict one token more; else none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.machine.regions.decoder import Decoder

LLAMA_3, LLAMA_2, QWEN_2, QWEN_3 = 128_256, 32_000, 152_064, 151_936
"""Vocabularies of families."""


@dataclass(frozen=True)
class Draft:
    """What guesses the next tokens, which the model then checks in one pass."""

    shape: Decoder
    most_tokens: int
    """The most tokens that it guesses before a pass."""


_LLAMA_1B = Decoder(2048, 8192, 16, 512, vocabulary=LLAMA_3)
_LLAMA_8B = Decoder(4096, 14336, 32, 1024, vocabulary=LLAMA_3)
_LLAMA_70B = Decoder(8192, 28672, 80, 1024, vocabulary=LLAMA_3)
_QWEN_600M = Decoder(1024, 3072, 28, 1024, query_dim=2048, vocabulary=QWEN_3)
_GLM_4 = Decoder(
    5120, 1536, 92, 1024, query_dim=12288, experts=160, experts_per_token=8, shared_experts=1,
    vocabulary=151_552,
)  # fmt: skip
_GLM_4_NEXT = Decoder(
    5120, 1536, 1, 1024, query_dim=12288, experts=160, experts_per_token=8, shared_experts=1,
    vocabulary=151_552,
)  # fmt: skip

DECODERS: Mapping[str, Decoder] = {
    "llama-2-7b": Decoder(4096, 11008, 32, 4096, vocabulary=LLAMA_2),
    "llama-2-13b": Decoder(5120, 13824, 40, 5120, vocabulary=LLAMA_2),
    "llama-2-70b": Decoder(8192, 28672, 80, 1024, vocabulary=LLAMA_2),
    "llama-3-8b": _LLAMA_8B,
    "llama-3-70b": _LLAMA_70B,
    "llama-3.1-8b": _LLAMA_8B,
    "llama-3.1-70b": _LLAMA_70B,
    "llama-3.1-405b": Decoder(16384, 53248, 126, 1024, vocabulary=LLAMA_3),
    "llama-3.2-1b": _LLAMA_1B,
    "llama-3.2-3b": Decoder(3072, 8192, 28, 1024, vocabulary=LLAMA_3),
    "llama-3.3-70b": _LLAMA_70B,
    "deepseek-r1-distill-70b": _LLAMA_70B,
    "deepseek-r1-distill-llama-70b": _LLAMA_70B,
    "llama-4-scout": Decoder(
        5120, 8192, 48, 1024, experts=16, shared_experts=1, vocabulary=202_048
    ),
    "internlm-20b": Decoder(5120, 13824, 60, 5120, vocabulary=103_168),
    "mistral-7b": Decoder(4096, 14336, 32, 1024, vocabulary=32_768),
    "codellama-34b": Decoder(8192, 22016, 48, 1024, vocabulary=32_016),
    "qwen2-72b": Decoder(8192, 29568, 80, 1024, vocabulary=QWEN_2),
    "qwen3-0.6b": _QWEN_600M,
    "qwen3-32b": Decoder(5120, 25600, 64, 1024, query_dim=8192, vocabulary=QWEN_3),
    "qwen3-235b-a22b": Decoder(
        4096, 1536, 94, 512, query_dim=8192, experts=128, experts_per_token=8, vocabulary=QWEN_3
    ),
    "qwen3-coder-480b-a35b": Decoder(
        6144, 2560, 62, 1024, query_dim=12288, experts=160, experts_per_token=8, vocabulary=QWEN_3
    ),
    "gpt-oss-20b": Decoder(
        2880, 2880, 24, 512, query_dim=4096, experts=32, experts_per_token=4, vocabulary=201_088,
        weight_bits=4,
    ),
    "gpt-oss-120b": Decoder(
        2880, 2880, 36, 512, query_dim=4096, experts=128, experts_per_token=4, vocabulary=201_088,
        weight_bits=4,
    ),
    "glm-4.7": _GLM_4,
    # Keys and values are one latent vector of 576, weights of experts 4 bits.
    "kimi-k2.6": Decoder(
        7168, 2048, 61, 288, query_dim=8192, experts=384, experts_per_token=8, shared_experts=1,
        vocabulary=163_840, weight_bits=4,
    ),
}  # fmt: skip
"""Shapes by model. Layers of GLM and Kimi that have no experts are counted as if they had."""

_SIBLING = 16
"""The most tokens that a sibling guesses; more never pay."""

DRAFTS: Mapping[str, Draft] = {
    **dict.fromkeys(
        (
            *("llama-3-70b", "llama-3.1-70b", "llama-3.1-405b", "llama-3.3-70b"),
            *("deepseek-r1-distill-70b", "deepseek-r1-distill-llama-70b"),
        ),
        Draft(_LLAMA_1B, _SIBLING),
    ),
    **dict.fromkeys(
        ("qwen3-32b", "qwen3-235b-a22b", "qwen3-coder-480b-a35b"), Draft(_QWEN_600M, _SIBLING)
    ),
    "glm-4.7": Draft(_GLM_4_NEXT, 1),
}
"""Drafts by model."""


def name_unknown(name: str) -> ConfigError:
    """Return the error of a name that is in no list."""
    return ConfigError(
        "the model must be known by name",
        code="decoder-name-unknown",
        value=name,
        rule=", ".join(DECODERS),
        remedy=did_you_mean(name, list(DECODERS)),
    )
