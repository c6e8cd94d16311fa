"""Parameters of our encoders by their names in transformers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

BERT_RULES = (
    ("embedding.token", "{0}.embeddings.word_embeddings"),
    ("embedding.position", "{0}.embeddings.position_embeddings"),
    ("embedding.segment", "{0}.embeddings.token_type_embeddings"),
    ("embedding.norm", "{0}.embeddings.LayerNorm"),
    ("mlm.transform", "lm_head.dense"),
    ("mlm.norm", "lm_head.layer_norm"),
    ("mlm.head", "lm_head.decoder"),
    ("head.pooler", "{0}.pooler.dense"),
    ("head.classifier", "classifier"),
    ("encoder.", "{0}.encoder.layer."),
    ("attention.output", "attention.output.dense"),
    ("attention_norm", "attention.output.LayerNorm"),
    ("feed_forward.up", "intermediate.dense"),
    ("feed_forward.down", "output.dense"),
    ("feed_forward_norm", "output.LayerNorm"),
    *((f"attention.{part}", f"attention.self.{part}") for part in ("query", "key", "value")),
)


_PATCH_RULES = (
    ("class_token", "{0}.embeddings.cls_token"),
    ("position.weight", "{0}.embeddings.position_embeddings"),
    ("patch.", "{0}.embeddings.patch_embeddings.projection."),
    ("feed_forward.up", "mlp.fc1"),
    ("feed_forward.down", "mlp.fc2"),
    *((f"attention.{part}", f"attention.{part[0]}_proj") for part in ("query", "key", "value")),
    ("attention.output", "attention.o_proj"),
)
_LAST_NORM = ("norm.", "{0}.layernorm.")  # of which no part of a layer's name is left by then
VIT_RULES = (
    *_PATCH_RULES,
    ("encoder.", "{0}.layers."),
    ("attention_norm", "layernorm_before"),
    ("feed_forward_norm", "layernorm_after"),
    _LAST_NORM,
)
DINO_RULES = (
    ("mask_token", "{0}.embeddings.mask_token"),
    *_PATCH_RULES,
    ("encoder.", "{0}.encoder.layer."),
    ("attention_norm", "norm1"),
    ("feed_forward_norm", "norm2"),
    ("attention_scale.factor", "layer_scale1.lambda1"),
    ("feed_forward_scale.factor", "layer_scale2.lambda1"),
    _LAST_NORM,
)


def transformers_names(
    model: nn.Module, prefix: str, rules: Sequence[tuple[str, str]] = BERT_RULES
) -> dict[str, str]:
    """Return the name in transformers of each parameter; ``prefix`` is that of the encoder."""
    found = {}
    for name, _ in model.named_parameters():
        other = name
        for ours, theirs in rules:
            other = other.replace(ours, theirs.format(prefix))
        found[name] = other
    return found
