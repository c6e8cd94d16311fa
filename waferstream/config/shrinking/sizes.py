"""The sizes of a model section that shrink together, by the names of their keys.

The new value of a width depends on the old one alone, so that widths that are equal stay equal:
what one part returns is what the next one reads, in models of any number of parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MODEL_WIDTHS = ("hidden_size", "d_model")
_WIDTHS = frozenset(
    {
        *_MODEL_WIDTHS,
        *("filter_size", "d_ff", "attention_inner_dim", "bottleneck_size"),
        *("input_unit", "layers_units", "input_size", "output_size", "frequency_embedding_size"),
        *("mup_base_hidden_size", "mup_base_filter_size", "mup_base_d_model", "mup_base_d_ff"),
    }
)
_DEPTHS = ("num_hidden_layers", "depth")
_VOCABULARIES = ("vocab_size",)
_LENGTHS = ("max_position_embeddings",)
_MOST: Mapping[str, int] = {
    "attention_sliding_window_length": 32,
    "attention_sink_tokens": 4,
    "attention_chunk_size": 32,
    "attention_vertical_column_spacing": 32,
    "attention_vertical_column_width": 4,
    "attn_memory_chunk_size": 28,
    "num_memory_tokens_per_chunk": 4,
    "local_patch_dims": 4,
}
"""The most of sizes that are parts of a sequence."""

VOCABULARY = 512
LENGTH = 128
_PATCHES = 8
"""Tokens, and patches in a row of an image, of models whose data are synthetic."""


@dataclass(frozen=True)
class Sizes:
    """What a model shrinks to: the width and number of its layers, and whether its data, too."""

    width: int
    layers: int
    original_width: int
    shrinks_data: bool

    @property
    def heads(self) -> int:
        """Most attention heads of a layer, a power of two."""
        return 1 << max(2, (self.width // 64).bit_length() - 1)

    def scaled(self, width: int) -> int:
        """Return the new value of a width: a multiple of eight elements for every head."""
        unit = 8 * self.heads
        units = round(width * self.width / self.original_width / unit)
        return min(width, unit * max(1, units))


def model_width(section: Any) -> int | None:
    """Return the largest width of a model section and the sections in it; None without one."""
    return max(_model_widths(section), default=None)


def _model_widths(section: Any) -> Iterator[int]:
    for key, value in _items(section):
        if key in _MODEL_WIDTHS and isinstance(value, int):
            yield value
        yield from _model_widths(value)


def _items(section: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a mapping, or of the mappings of a list."""
    if isinstance(section, Mapping):
        yield from section.items()
    elif isinstance(section, list):
        yield from (("", each) for each in section)


def shrunk_model(section: Any, sizes: Sizes) -> Any:
    """Return a model section, or a part of it, at these sizes."""
    if isinstance(section, list):
        return [shrunk_model(each, sizes) for each in section]
    if not isinstance(section, Mapping):
        return section
    plain = {key: _shrunk(key, value, sizes) for key, value in section.items()}
    return {**plain, **_image(section, sizes), **_heads(section, sizes)}


def _shrunk(key: str, value: Any, sizes: Sizes) -> Any:
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return [_shrunk(key, each, sizes) for each in value]
    if isinstance(value, bool) or not isinstance(value, int):
        return shrunk_model(value, sizes)
    if key in _WIDTHS:
        return sizes.scaled(value)
    if key.endswith(_DEPTHS):
        return min(value, sizes.layers)
    return shrunk_data_size(key, value) if sizes.shrinks_data else value


def shrunk_data_size(key: str, value: int) -> int:
    """Return a size that synthetic data have, too: a vocabulary, a length or a part of it."""
    if key.endswith(_VOCABULARIES):
        return min(value, VOCABULARY)
    if key.endswith((*_LENGTHS, "max_sequence_length")):
        return min(value, LENGTH)
    return min(value, _MOST.get(key, value))


def _image(section: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Return the size of the images that a section reads by patches, in fewer of them."""
    image, patch = section.get("image_size"), section.get("patch_size")
    if not sizes.shrinks_data or not isinstance(image, list) or not isinstance(patch, list):
        return {}
    pairs = zip(image, patch, strict=True)
    return {"image_size": [min(size, _PATCHES * each) for size, each in pairs]}


def _heads(section: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Return the sizes of a section that depend on its attention heads."""
    heads = section.get("num_heads")
    hidden = next((section[key] for key in _MODEL_WIDTHS if section.get(key)), None)
    if not isinstance(heads, int) or hidden is None:
        return {}
    fewer = min(sizes.heads, 1 << heads.bit_length() - 1)
    inner = section.get("attention_inner_dim") or hidden
    elements, old_elements = sizes.scaled(inner) // fewer, inner // heads
    found: dict[str, Any] = {"num_heads": fewer}
    if section.get("d_kv"):
        found["d_kv"] = elements
    if rotary := section.get("rotary_dim"):
        found["rotary_dim"] = max(2, rotary * elements // old_elements // 2 * 2)
    groups = (section.get("extra_attention_params") or {}).get("num_kv_groups")
    if groups:
        found["extra_attention_params"] = {
            **section["extra_attention_params"],
            "num_kv_groups": _groups(groups, heads, fewer),
        }
    return found


def _groups(groups: int, heads: int, fewer: int) -> int:
    """Return groups of fewer heads: one, all, or some where there were some."""
    if groups in (1, heads):
        return 1 if groups == 1 else fewer
    return min(2, fewer)
