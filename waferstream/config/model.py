"""``trainer.init.model``: a registered name; the other keys belong to the model class."""

from __future__ import annotations

from pydantic import ConfigDict

from waferstream.config.section import Section


class ModelConfig(Section):
    """Which model, with keys that its class validates; ``dump`` gives them all."""

    model_config = ConfigDict(extra="allow")

    name: str
