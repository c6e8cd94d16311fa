"""Weights that a model keeps as they are, by regular expressions (key ``freeze``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field
from torch import nn

from waferstream.core.errors import ConfigError
from waferstream.workload.published_names import published_name


def _checked(pattern: str) -> str:
    """Return a regular expression; ValueError if it is none."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from error
    return pattern


NamePattern = Annotated[str, AfterValidator(_checked), Field(max_length=200)]
"""Regular expression that is searched in the vendor's names of modules and parameters."""


def freeze(
    model: nn.Module, patterns: Sequence[str], published: Callable[[str], str] = published_name
) -> None:
    """Freeze the parameters whose name, or the name of whose module, a pattern matches.

    Args:
        model: The model.
        patterns: Regular expressions.
        published: Returns the vendor's name of a parameter of the model.

    Raises:
        ConfigError: A pattern matches none.
    """
    for pattern in patterns:
        search = re.compile(pattern).search
        frozen = [p for name, p in model.named_parameters() if _is_named(published(name), search)]
        if not frozen:
            raise ConfigError(
                "every pattern of freeze must match a part of the model",
                code="freeze-without-match",
                where="trainer.init.model.freeze",
                value=pattern,
                rule="a regular expression for names such as ^text_model",
            )
        for parameter in frozen:
            parameter.requires_grad = False


def _is_named(name: str, search: Callable[[str], object]) -> bool:
    """Tell whether a search finds something in the name of a parameter or its module."""
    return bool(search(name) or search(name.rpartition(".")[0]))
