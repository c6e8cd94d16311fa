"""Models by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from modelzoo.models.gpt import GptModel
from modelzoo.models.gpt_config import GptConfig
from wsc.core.config import validate
from wsc.core.errors import ConfigError, nearest

MODELS = ("gpt2", "gpt3", "llama")
"""All are one class with different values, as in the vendor's model zoo."""


def model_config(config: Mapping[str, Any], where: str = "model") -> GptConfig:
    """The validated model section of params.yaml, found at ``where``. Raises ConfigError."""
    name = config.get("name")
    if name not in MODELS:
        guess = nearest(str(name), MODELS)
        raise ConfigError(
            "unknown model" if name else "key 'name' is missing",
            where=where,
            value=name,
            rule=f"one of {', '.join(MODELS)}",
            remedy=f"did you mean {guess!r}?" if guess else None,
        )
    return validate(GptConfig, config, where)


def build_model(config: Mapping[str, Any], seed: int, where: str = "model") -> nn.Module:
    """The model that a model section of params.yaml describes, initialized from ``seed``.

    Made on torch's default device; under ``torch.device("meta")`` that takes no memory. Leaves
    the global random state alone. Raises ConfigError.
    """
    device = torch.get_default_device()
    with torch.device("meta"):  # skips torch's own initialization
        model = GptModel(model_config(config, where))
    model.to_empty(device=device)
    model.initialize(seed)
    return model
