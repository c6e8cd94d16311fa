"""Keys of config.json: those that a conversion reads, and those that change no score."""

from __future__ import annotations

from typing import Any

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
