"""Models whose answers depend on more than distances and windows are not served."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.errors import raises
from tests.support.models.tiny_models import FOUR_HEADS, NO_DROPOUT, TOKENS
from waferstream.core.errors import ConfigError
from waferstream.serving.models.loading import ServedModel
from waferstream.serving.models.text import ByteText
from waferstream.workload.models import build_model


@pytest.mark.parametrize(
    "keys",
    [
        {"attention_chunk_size": 4},
        {"memory_tokens": {"attn_memory_chunk_size": 4, "num_memory_tokens_per_chunk": 1}},
        {"moe": {"num_experts": 2, "routing_algorithm": "uniform"}},
    ],
)
def test_what_a_place_decides_is_not_served(keys: dict[str, Any]) -> None:
    section = {"name": "gpt2", **TOKENS, **FOUR_HEADS, **NO_DROPOUT}
    model = build_model(section | {"position_embedding_type": "rotary"} | keys, seed=0)
    with raises(ConfigError, "model-without-answers"):
        ServedModel.of(model, Path("weights"), Path("folder"), ByteText())
