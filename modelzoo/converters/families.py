"""The families of transformers that have a model here, and models that are made of them.

Keys and names: config.json and the state dict of transformers 5 (``model_type``).
"""

from __future__ import annotations

from collections.abc import Mapping

from modelzoo.converters.family import Conversion, Family
from modelzoo.converters.gpt_families import BLOOM, GPT2, GPT_NEOX, GPTJ
from modelzoo.converters.llama_families import GEMMA2, LLAMA, MISTRAL
from modelzoo.converters.preference import PreferenceFamily

DECODERS: Mapping[str, Family] = {
    family.model_type: family for family in (GPT2, GPTJ, GPT_NEOX, BLOOM, LLAMA, MISTRAL, GEMMA2)
}
"""Families by ``model_type``."""

FAMILIES: Mapping[str, Conversion] = {
    **DECODERS,
    "dpo": PreferenceFamily(tuple(DECODERS.values())),
}
"""Conversions by the name of ``--model``: ``model_type`` of a family, or a name of ours."""
