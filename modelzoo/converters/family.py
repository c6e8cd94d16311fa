"""A family of models in transformers and here: names of weights, and keys of the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from modelzoo.converters.weights import Rule, Weights, matched, to_ours, to_theirs
from waferstream.core.errors import ConfigError
from waferstream.workload.models import model_config

Keys = Callable[[Mapping[str, Any]], dict[str, Any]]


_COMPUTED = (
    ".rotary_emb.inv_freq",
    ".rotary_embeddings.inv_freq",
    ".attn.bias",
    ".attention.bias",
    ".masked_bias",
    ".position_ids",
)
"""Ends of the names of masks and rotations, which files of earlier releases have."""


def no_keys(values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return nothing: the family spells all keys alike."""
    return {}


@dataclass(frozen=True)
class Family:
    """A ``model_type`` of transformers, and how it is ours."""

    model_type: str
    architecture: str
    """Class with the output layer, for config.json."""
    name: str
    """Our model."""
    rules: tuple[Rule, ...]
    """The first one is the embedding."""
    keys: Mapping[str, str]
    """Our key to theirs."""
    implied: Mapping[str, Any]
    """Our keys that every model of the family has."""
    required: Mapping[str, Any] = field(default_factory=dict)
    """Their keys that must have this value if they are there: nothing else is computed here."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Their values of keys that a file may leave out, where ours are others: transformers writes
    what differs from the defaults of its configuration alone. None where a key has no effect."""
    further_ours: Keys = no_keys
    """Returns our keys that their configuration spells otherwise; ConfigError for other models."""
    further_theirs: Keys = no_keys
    """Returns their keys that a complete section of ours spells otherwise."""
    unpacked: Callable[[Weights], Weights] = dict
    """Returns weights of which none is packed, as a file may have them."""
    duplicates: Mapping[str, str] = field(default_factory=dict)
    """Further names of their weights, which a file may have, and the name of each."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Patterns in names of other releases, and what stands in their place in the rules."""
    unread: tuple[str, ...] = ()
    """Starts of names of parts that our model may lack, since its scores do not depend on them."""

    def section(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete model section for a config.json.

        Raises:
            ConfigError: It is of another family, or asks for what is not computed here.
        """
        require(config, "model_type", self.model_type)
        config = {**self.defaults, **config}
        for key, value in self.required.items():
            if key in config:
                require(config, key, value)
        section = {"name": self.name, **self.implied}
        section |= {ours: config[key] for ours, key in self.keys.items() if key in config}
        try:
            if "hidden_size" in section and section.get("filter_size") is None:
                section["filter_size"] = 4 * section["hidden_size"]
            noted = NotedReads(config)
            section |= self.further_ours(noted)
            self._refuse_rest(config, noted.read)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise ConfigError(
                "the configuration must have the keys of its family",
                code="config-not-convertible",
                where="config.json",
                value=repr(error),
                remedy=f"take the config.json that transformers wrote for {self.architecture}",
            ) from error
        return model_config(section, "config.json").model_dump(by_alias=True)

    def _refuse_rest(self, config: Mapping[str, Any], read: Set[str]) -> None:
        """Raise ConfigError for a key that asks for something, which nothing here has read."""
        known = {"model_type", *self.keys.values(), *self.required, *self.defaults, *read}
        for key, value in config.items():
            if value and key not in known and not has_no_effect(key):
                raise ConfigError(
                    "the configuration must be one that can be converted",
                    code="config-not-convertible",
                    where=key,
                    value=value,
                    rule=f"a key that {self.architecture} is computed by here",
                    remedy="remove the key if it does not change the scores of the model",
                )

    def configuration(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Return config.json for a model section of ours.

        Raises:
            ConfigError: The model is not of this family.
        """
        complete = model_config(section, "model").model_dump(by_alias=True)
        for key, value in self.implied.items():
            require(complete, key, value)
        config = {key: complete[ours] for ours, key in self.keys.items()}
        config |= {**self.required, "model_type": self.model_type}
        config["architectures"] = [self.architecture]
        return config | self.further_theirs(complete)

    def _plain(self, weights: Weights) -> Weights:
        """Return weights as transformers names them today, without what it computes itself.

        Files of the model without its output layer lack the first part of each name.
        """
        plain = self.unpacked(weights)
        plain = {name: each for name, each in plain.items() if not name.endswith(_COMPUTED)}
        plain = {self._of_today(name): each for name, each in plain.items()}
        for other, name in self.duplicates.items():
            if other in plain:
                plain.setdefault(name, plain.pop(other))
        body, *_ = firsts = [each.theirs.partition(".")[0] for each in self.rules]
        if any(name.startswith(f"{body}.") for name in plain):
            return plain
        return {
            name if name.partition(".")[0] in firsts else f"{body}.{name}": each
            for name, each in plain.items()
        }

    def _of_today(self, name: str) -> str:
        """Return the name of a weight as the rules have it."""
        for early, today in ((".gamma", ".weight"), (".beta", ".bias")):
            if name.endswith(f"LayerNorm{early}"):
                name = name.removesuffix(early) + today
        for early, today in self.renamed:
            name = re.sub(early, today, name)
        return name

    def matched(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights that our model has (``weights.matched``)."""
        return matched(self.rules, self._plain(weights), section)

    def to_ours(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of our model (``weights.to_ours``)."""
        plain = self._plain(weights)
        if self.unread:
            read = self.matched(weights, section)
            plain = {n: w for n, w in plain.items() if n in read or not n.startswith(self.unread)}
        return to_ours(self.rules, plain, section)

    def to_theirs(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of transformers' model (``weights.to_theirs``)."""
        complete = model_config(section, "model").model_dump(by_alias=True)
        return to_theirs(self.rules, weights, complete)


def rope_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the rotation, also as transformers wrote them before release 5."""
    rope = config.get("rope_parameters")
    if rope:
        return {"rope_type": "default", "rope_theta": 10000.0, **rope}
    theta = config.get("rope_theta", config.get("rotary_emb_base", 10000.0))
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return {**scaling, "rope_theta": theta, "rope_type": kind}


def without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a mapping without some keys, which another family spells otherwise."""
    return {key: value for key, value in values.items() if key not in keys}


def require(values: Mapping[str, Any], key: str, value: Any) -> None:
    """Raise ConfigError unless a key has the only value that can be converted."""
    if values.get(key) != value:
        raise ConfigError(
            "the configuration must be one that can be converted",
            code="config-not-convertible",
            where=key,
            value=values.get(key),
            rule=f"{key} is {value}",
        )


_NAMES = """
architectures auto_map cache_implementation dtype torch_dtype transformers_version use_cache
return_dict id2label label2id num_labels task_specific_params tokenizer_class is_llama_config
router_aux_loss_coef router_jitter_noise output_router_logits gradient_checkpointing
initializer_factor initializer_range n_ctx reorder_and_upcast_attn max_window_layers
initial_context_length experts_per_token full_attn_mod interpolate_factor rotary slow_but_exact
max_length num_beams num_beam_groups num_return_sequences temperature top_k top_p typical_p
repetition_penalty length_penalty diversity_penalty
"""
_NO_EFFECT = frozenset(_NAMES.split())
"""What is of training, of loading, of how tokens are drawn, or another name of a key."""

_ENDS, _STARTS = ("_token_id", "pdrop"), ("_", "summary_", "unsloth")


def has_no_effect(key: str) -> bool:
    """Return whether a key changes no score."""
    return key in _NO_EFFECT or key.endswith(_ENDS) or key.startswith(_STARTS) or "dropout" in key


class NotedReads(dict[str, Any]):
    """A configuration that notes the keys that are read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        self.read.add(key)
        return super().get(key, default)
