"""Sections of params.yaml with nothing in them but what a test is about."""

from __future__ import annotations

from typing import Any

from waferstream.config.params import InitConfig
from waferstream.core.config import validate


def init_section(**sections: Any) -> InitConfig:
    """``trainer.init`` of ``f.yaml``: a model and these sections; ConfigError if one is wrong."""
    return validate(InitConfig, {"model": {"name": "gpt3"}, **sections}, "f.yaml")
