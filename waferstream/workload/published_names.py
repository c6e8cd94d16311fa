"""Names that the vendor's Model Zoo gives to the parameters of the models here.

Filters in stock params files are written for them (``*proj_[qkv]_dense_layer.weight``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_RULES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^head\.", "lm_head."),
        (r"^embedding\.(?!position|segment|token|norm)", "embedding_layer.word_embeddings."),
        (r"^embedding\.token\.", "embedding_layer.word_embeddings."),
        (r"^embedding\.segment\.", "embedding_layer.segment_embeddings."),
        (r"^embedding\.norm\.", "embed_ln_f."),
        (r"^embedding_norm\.", "embedding_ln_f."),
        (r"^memory_embedding\.", "embedding_layer.memory_token_embedding."),
        (r"^(embedding\.)?position\.", "embedding_layer.position_embeddings.embed."),
        (r"^relative\.table\.", "embedding_layer.position_embed_helper.relative_attention_bias."),
        (r"^relative\.slopes$", "embedding_layer.position_embed_helper.slopes"),
        (r"cross_attention_norm\.", "norm2."),
        (r"attention_output_norm\.", "norm1_post."),
        (r"feed_forward_output_norm\.", "norm3_post."),
        (r"(?<![a-z_])attention_norm\.", "norm1."),
        (r"^(decoder.*)feed_forward_norm\.", r"\1norm3."),
        (r"feed_forward_norm\.", "norm2."),
        (r"attention_scale\.factor", "layer_scale1"),
        (r"feed_forward_scale\.factor", "layer_scale2"),
        (r"^(decoder|encoder)\.", r"transformer_\1.layers."),
        (r"cross_attention\.(q|k|v)(?:uery|ey|alue)\.", r"multihead_attn.proj_\1_dense_layer."),
        (r"cross_attention\.output\.", "multihead_attn.proj_output_dense_layer."),
        (r"attention\.(q|k)(?:uery|ey)_norm\.", r"self_attn.\1_norm."),
        (
            r"attention\.(q|k|v)(?:uery|ey|alue)\.memory\.",
            r"self_attn.proj_\1_memory_tokens_layer.",
        ),
        (r"attention\.output\.memory\.", "self_attn.proj_output_memory_tokens_layer."),
        (r"attention\.(q|k|v)(?:uery|ey|alue)\.", r"self_attn.proj_\1_dense_layer."),
        (r"attention\.output\.", "self_attn.proj_output_dense_layer."),
        (r"feed_forward\.router\.", "ffn.gate."),
        (r"feed_forward\.shared\.up\.", "ffn.experts.shared_experts.0.ffn.0.linear_layer."),
        (
            r"feed_forward\.shared\.gate\.",
            "ffn.experts.shared_experts.0.ffn.0.linear_layer_for_glu.",
        ),
        (r"feed_forward\.shared\.down\.", "ffn.experts.shared_experts.0.ffn.1.linear_layer."),
        (r"feed_forward\.up\.", "ffn.ffn.0.linear_layer."),
        (r"feed_forward\.gate\.", "ffn.ffn.0.linear_layer_for_glu."),
        (r"feed_forward\.down\.", "ffn.ffn.1.linear_layer."),
    )
)


_PART = re.compile(r"(trunk|head)_(\d+)\.(.*)")
_KINDS = {"trunk": "image_model_trunks", "head": "heads"}
_IN_TRUNK = (
    (re.compile(r"^patch\."), "embedding_layer.linear_proj."),
    (re.compile(r"^class_token$"), "embedding_layer.cls_embedding"),
    (re.compile(r"^mask_token$"), "embedding_layer.mask_token"),
    (re.compile(r"^transformer_encoder\."), "encoder.transformer_encoder."),
    (re.compile(r"^norm\."), "encoder.transformer_encoder.norm."),
    (re.compile(r"^embedding_ln_f\."), "embedding_layer.post_embed_ln."),
)

_TOWER = re.compile(r"^(text_model|image_model(\.image_model_list\.encoder_\d+)?)\.")
"""The language model, or an encoder of images, of a model that reads both."""

_LISTED = re.compile(r"\.image_model_list\.(encoder|projection)_(\d+)\.")
"""One of several encoders of images, or the projection of its output."""


def published_name(name: str) -> str:
    """Return the vendor's name of a parameter; the same where it has none of its own."""
    if part := _PART.fullmatch(name):
        start = f"{_KINDS[part[1]]}.model.{part[2]}."
        return start + (
            _replaced(part[3], (*_RULES, *_IN_TRUNK)) if part[1] == "trunk" else part[3]
        )
    tower = _TOWER.match(name)
    start = "" if tower is None else tower[0]
    rules = (*_RULES, *_IN_TRUNK) if start.startswith("image_model") else _RULES
    return _LISTED.sub(_listed, start + _replaced(name.removeprefix(start), rules))


def published_vit_name(name: str) -> str:
    """Return the vendor's name of a parameter of the classifier of images."""
    if name.startswith("classifier."):
        return f"classifier.{name}"
    return f"vit_model.{_replaced(name, (*_RULES, *_IN_TRUNK))}"


def _listed(found: re.Match[str]) -> str:
    """Return the vendor's name of a listed module: its place in a list, and 0 or 1 in a pair."""
    return f".image_model_list.{found[2]}.{int(found[1] == 'projection')}."


def _replaced(name: str, rules: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in rules:
        name = pattern.sub(replacement, name)
    return name
