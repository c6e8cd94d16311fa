"""Initial weights of encoder-decoder transformers, as at the vendor."""

from __future__ import annotations

from modelzoo.models.blocks.initializers import (
    NormalInitializer,
    TruncatedNormalInitializer,
    WeightInitializer,
    XavierInitializer,
)
from modelzoo.models.encoder_decoder.config import EncoderDecoderConfig

Initializers = dict[str, WeightInitializer]
"""By the end of a parameter's name; the first that fits."""


def initializers(config: EncoderDecoderConfig) -> Initializers:
    """Return the initializers of all weights."""
    weights = _of_2017(config) if config.use_transformer_initialization else _of_t5(config)
    return {**weights, "table.weight": _spread(1.0)}


def _of_t5(config: EncoderDecoderConfig) -> Initializers:
    """Return those of T5; with muP, what layers add shrinks with their number."""
    width, filters, size = config.d_model**-0.5, config.d_ff**-0.5, config.d_kv**-0.5
    is_mup = config.width_ratios is not None
    outer = NormalInitializer(std=width if is_mup else 1.0)
    plain = NormalInitializer(std=width)
    shrunk: Initializers = {}
    for stack, layers in (("encoder", config.encoder), ("decoder", config.decoder)):
        depth = (2 * layers.num_hidden_layers) ** -0.5 if is_mup else 1.0
        for number in range(layers.num_hidden_layers):
            for part in ("attention", "cross_attention"):
                name = f"{stack}.{number}.{part}.output.weight"
                shrunk[name] = NormalInitializer(std=width * depth)
            name = f"{stack}.{number}.feed_forward.down.weight"
            shrunk[name] = NormalInitializer(std=filters * depth)
    return {
        "embedding.weight": outer,
        "head.weight": outer,
        "query.weight": NormalInitializer(std=width * size),
        **dict.fromkeys(("key.weight", "value.weight", "up.weight", "gate.weight"), plain),
        **shrunk,
    }


def _of_2017(config: EncoderDecoderConfig) -> Initializers:
    """Return those of Vaswani et al. 2017, with the vendor's gains."""
    others = _spread(1 / 3)
    inner = _spread(1.0)
    return {
        "embedding.weight": TruncatedNormalInitializer(std=1.0),
        "head.weight": NormalInitializer(std=1.0),
        "query.weight": _spread((9 * config.d_kv) ** -0.5),
        **dict.fromkeys(("key.weight", "value.weight", "output.weight"), others),
        **dict.fromkeys(("up.weight", "gate.weight", "down.weight"), inner),
    }


def _spread(gain: float) -> WeightInitializer:
    """Return uniform weights of variance 2 gain^2 / (inputs + outputs)."""
    return XavierInitializer(name="xavier_uniform", gain=gain)
