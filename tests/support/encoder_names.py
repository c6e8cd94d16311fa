"""Parameters of our encoders by their names in transformers."""

from __future__ import annotations

from torch import nn

_RULES = (
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


def transformers_names(model: nn.Module, prefix: str) -> dict[str, str]:
    """Return the name in transformers of each parameter; ``prefix`` is that of the encoder."""
    found = {}
    for name, _ in model.named_parameters():
        other = name
        for ours, theirs in _RULES:
            other = other.replace(ours, theirs.format(prefix))
        found[name] = other
    return found
