"""Models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modelzoo.models.bert import BertModel
from modelzoo.models.bert_config import BertConfig, EsmConfig
from modelzoo.models.dit import DitModel
from modelzoo.models.dit_config import DitConfig
from modelzoo.models.gpt import GptModel
from modelzoo.models.gpt_config import GptConfig, GptjConfig
from modelzoo.models.transformer_config import TransformerConfig
from wsc.core.config import validate
from wsc.core.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class _Family:
    """A model class and the configuration that it is built from."""

    module: Callable[[Any], Any]
    config: type[TransformerConfig]


MODELS = {
    "gpt2": _Family(GptModel, GptConfig),
    "gpt3": _Family(GptModel, GptConfig),
    "llama": _Family(GptModel, GptConfig),
    "gptj": _Family(GptModel, GptjConfig),
    "bert": _Family(BertModel, BertConfig),
    "esm2": _Family(BertModel, EsmConfig),
    "dit": _Family(DitModel, DitConfig),
}
"""Several names may be one class with different values, as in the vendor's model zoo."""


def model_config(config: Mapping[str, Any], where: str = "model") -> TransformerConfig:
    """The validated model section of params.yaml, found at ``where``. Raises ConfigError."""
    name = config.get("name")
    if name not in MODELS:
        raise ConfigError(
            "unknown model" if name else "key 'name' is missing",
            where=where,
            value=name,
            rule=f"one of {', '.join(MODELS)}",
            remedy=did_you_mean(str(name), MODELS),
        )
    return validate(MODELS[name].config, config, where)


def build_model(config: Mapping[str, Any], seed: int, where: str = "model") -> nn.Module:
    """The model that a model section of params.yaml describes, initialized from ``seed``.

    Made on torch's default device; under ``torch.device("meta")`` that takes no memory. Leaves
    the global random state alone. Raises ConfigError.
    """
    validated = model_config(config, where)
    device = torch.get_default_device()
    with torch.device("meta"):  # skips torch's own initialization
        model = MODELS[validated.name].module(validated)
    model.to_empty(device=device)
    model.initialize(seed)
    initialized: nn.Module = model
    return initialized
