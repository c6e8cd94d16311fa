"""The families of transformers that have a model here.

Keys and names: config.json and the state dict of transformers 5 (``model_type``).
"""

from __future__ import annotations

from collections.abc import Mapping

from modelzoo.converters.family import Family
from modelzoo.converters.gpt_families import BLOOM, GPT2, GPT_NEOX, GPTJ
from modelzoo.converters.llama_families import GEMMA2, LLAMA, MISTRAL

_ALL = (GPT2, GPTJ, GPT_NEOX, BLOOM, LLAMA, MISTRAL, GEMMA2)

FAMILIES: Mapping[str, Family] = {family.model_type: family for family in _ALL}
"""Families by ``model_type``, which is the name of ``--model``."""
