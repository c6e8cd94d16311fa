"""The families of transformers that have a model here, and models that are made of them.

Keys and names: config.json and the state dict of transformers 5 (``model_type``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelzoo.converters.expert_families import GPT_OSS, MIXTRAL, QWEN3_MOE
from modelzoo.converters.falcon_families import FALCON, STARCODER
from modelzoo.converters.family import Family
from modelzoo.converters.gemma_families import GEMMA2, GEMMA3
from modelzoo.converters.gpt_families import BLOOM, BTLM, GPT2, GPT_NEOX, GPTJ, JAIS
from modelzoo.converters.llama_families import LLAMA, MISTRAL, PHI3, QWEN2, QWEN3
from modelzoo.converters.weights import Weights
from waferstream.core.errors import ConfigError
from waferstream.workload.models import model_config

_POLICY, _REFERENCE = "policy_model", "ref_model"


@dataclass(frozen=True)
class PreferenceFamily:
    """Our model ``dpo`` of any decoder that is converted alone."""

    decoders: tuple[Family, ...]
    name: str = "dpo"
    architecture: str = "that of its policy"

    def section(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model section for a config.json, with the defaults of section ``dpo``.

        Raises:
            ConfigError: It is of no family, or asks for what is not computed here.
        """
        policy = self._decoder("model_type", config.get("model_type")).section(config)
        section = {"name": self.name, _POLICY: policy, "dpo": {}}
        return model_config(section, "config.json").model_dump(by_alias=True)

    def configuration(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Return config.json of the policy; ConfigError if it is of no family."""
        return self._of(section).configuration(section[_POLICY])

    def matched(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights that the policy has."""
        return self._of(section).matched(weights, section[_POLICY])

    def to_ours(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of policy and reference, which are the same."""
        found = self._of(section).to_ours(weights, section[_POLICY])
        is_free = section["dpo"].get("reference_free", False)
        parts = (_POLICY,) if is_free else (_POLICY, _REFERENCE)
        return {f"{part}.{name}": weight for part in parts for name, weight in found.items()}

    def to_theirs(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of the policy as transformers has them."""
        start = f"{_POLICY}."
        policy = {n.removeprefix(start): w for n, w in weights.items() if n.startswith(start)}
        return self._of(section).to_theirs(policy, section[_POLICY])

    def _of(self, section: Mapping[str, Any]) -> Family:
        """Return the family of the policy of a section; ConfigError if there is none."""
        policy = section.get(_POLICY)
        return self._decoder("name", policy.get("name") if isinstance(policy, Mapping) else None)

    def _decoder(self, key: str, value: Any) -> Family:
        """Return the family with this value of a field; ConfigError if there is none."""
        for family in self.decoders:
            if getattr(family, key) == value:
                return family
        known = ", ".join(getattr(family, key) for family in self.decoders)
        raise ConfigError(
            "the configuration must be one that can be converted",
            code="config-not-convertible",
            where=key,
            value=value,
            rule=f"one of {known}",
        )


DECODERS: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        GPT2,
        GPTJ,
        GPT_NEOX,
        BLOOM,
        LLAMA,
        MISTRAL,
        MIXTRAL,
        PHI3,
        QWEN2,
        QWEN3,
        QWEN3_MOE,
        GEMMA2,
        GEMMA3,
        GPT_OSS,
        FALCON,
        STARCODER,
        JAIS,
        BTLM,
    )
}
"""Families by ``model_type``."""

DPO = PreferenceFamily(tuple(DECODERS.values()))
