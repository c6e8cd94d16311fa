"""Encoder-decoder transformers have the losses of other implementations with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn

from modelzoo.models.encoder_decoder.model import EncoderDecoderModel
from tests.support.errors import raises
from tests.support.nightly import nightly
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.core.errors import ConfigError
from waferstream.numerics.precision import StreamPrecision
from waferstream.training.setup.parameter_groups import LEARNING_RATE_GROUPS
from waferstream.workload.models import build_model, training_example

T5: dict[str, Any] = {
    "name": "t5",
    "src_vocab_size": 36,
    "extra_ids": 4,
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 48,
    "num_heads": 4,
    "encoder_num_hidden_layers": 2,
    "decoder_num_hidden_layers": 3,
    "relative_attention_num_buckets": 8,
    "src_max_position_embeddings": 30,
    "tgt_max_position_embeddings": 20,
    "dropout_rate": 0.0,
}
TRANSFORMER = T5 | {
    "name": "transformer",
    "tgt_vocab_size": 36,
    "d_kv": 8,
    "position_embedding_type": "fixed",
    "norm_type": "layernorm",
    "use_ffn_bias": True,
    "use_pre_encoder_decoder_layer_norm": False,
    "use_dropout_outside_residual_path": False,
    "use_transformer_initialization": True,
    "lm_loss_weight": 0.5,
}
GENERATOR = torch.Generator().manual_seed(0)
SOURCE, TARGET = (torch.randint(40, (3, n), generator=GENERATOR) for n in (30, 20))
LABELS = torch.randint(40, (3, 20), generator=GENERATOR)
MASK = (torch.arange(30) < torch.tensor([[30], [7], [21]])).long()
COUNTED = (torch.arange(20) < torch.tensor([[4], [20], [9]])).long()
BATCH = {
    "input_ids": SOURCE,
    "attention_mask": MASK,
    "decoder_input_ids": TARGET,
    "decoder_attention_mask": COUNTED,
    "labels": LABELS,
}


def build(section: dict[str, Any], **changes: object) -> EncoderDecoderModel:
    model = build_model(section | changes, seed=0)
    assert isinstance(model, EncoderDecoderModel)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(number))
    return model


def scores(model: EncoderDecoderModel) -> torch.Tensor:
    mask = (1 - MASK[:, None, None, :]) * torch.finfo(torch.float32).min
    return model.decode(TARGET, model.encode(SOURCE, mask), mask)


def summed(scores: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
    losses = F.cross_entropy(scores.flatten(0, 1), LABELS.flatten(), reduction="none")
    return (losses * COUNTED.flatten()).sum() * weight / 3


T5_NAMES = (
    ("encoder_bias.table", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"),
    ("decoder_bias.table", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"),
    ("encoder_norm", "encoder.final_layer_norm"),
    ("decoder_norm", "decoder.final_layer_norm"),
    ("cross_attention_norm", "layer.1.layer_norm"),
    ("attention_norm", "layer.0.layer_norm"),
    ("feed_forward_norm", "layer.LAST.layer_norm"),
    ("feed_forward.up", "layer.LAST.DenseReluDense.wi"),
    ("feed_forward.down", "layer.LAST.DenseReluDense.wo"),
    *(
        (f"cross_attention.{part}", f"layer.1.EncDecAttention.{part[0]}")
        for part in ("query", "key", "value", "output")
    ),
    *(
        (f"attention.{part}", f"layer.0.SelfAttention.{part[0]}")
        for part in ("query", "key", "value", "output")
    ),
    ("decoder_embedding", "decoder.embed_tokens"),
    ("embedding", "shared"),
    ("head", "lm_head"),
)


def name_in_t5(name: str) -> str:
    stack, _, rest = name.partition(".")
    for ours, theirs in T5_NAMES:
        if ours in name:
            name = name.replace(ours, theirs)
            break
    if rest[:1].isdigit():
        name = name.replace(f"{stack}.", f"{stack}.block.", 1)
    return name.replace("LAST", "1" if stack == "encoder" else "2")


@pytest.mark.parametrize("is_shared", [True, False])
def test_t5_equals_that_of_transformers(is_shared: bool) -> None:
    """Biases by distance, sizes of heads of their own, and the scale of shared vectors."""
    config = transformers.T5Config(
        vocab_size=40,
        d_model=32,
        d_kv=6,
        d_ff=48,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=4,
        relative_attention_num_buckets=8,
        layer_norm_epsilon=1e-5,
        feed_forward_proj="relu",
        tie_word_embeddings=is_shared,
    )
    model, theirs = (
        build(T5, share_embedding_weights=is_shared),
        transformers.T5ForConditionalGeneration(config).eval(),
    )
    if not is_shared:  # theirs always ties, and scales only where it was asked to tie
        theirs.lm_head.weight = nn.Parameter(torch.empty(40, 32))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs.get_parameter(name_in_t5(name)).copy_(parameter)
    expected = theirs(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=TARGET).logits
    torch.testing.assert_close(scores(model), expected)
    torch.testing.assert_close(model(**BATCH), summed(expected))


def torchs(model: EncoderDecoderModel) -> tuple[nn.Module, nn.Module]:
    """Return torch's encoder and decoder with the weights of a model."""
    keys: dict[str, Any] = {"d_model": 32, "nhead": 4, "dim_feedforward": 48, "batch_first": True}
    first, second = nn.TransformerEncoderLayer(**keys), nn.TransformerDecoderLayer(**keys)
    encoder = nn.TransformerEncoder(first, 2, nn.LayerNorm(32), enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(second, 3, nn.LayerNorm(32))
    state = dict(model.named_parameters())
    for stack, prefix in ((encoder, "encoder"), (decoder, "decoder")):
        stack.get_submodule("norm").load_state_dict(
            model.get_submodule(f"{prefix}_norm").state_dict()
        )
        for number, layer in enumerate(stack.layers):
            parts = {"self_attn": "attention", "multihead_attn": "cross_attention"}
            norms = ["attention_norm", "cross_attention_norm", "feed_forward_norm"]
            if prefix == "encoder":
                del parts["multihead_attn"], norms[1]
            start = f"{prefix}.{number}"
            for theirs, ours in parts.items():
                reading = ("query", "key", "value")
                three = tuple(state[f"{start}.{ours}.{each}.weight"] for each in reading)
                part = layer.get_submodule(theirs)
                part.get_parameter("in_proj_weight").copy_(torch.cat(three))
                output = state[f"{start}.{ours}.output.weight"]
                part.get_parameter("out_proj.weight").copy_(output)
            for place, ours in enumerate(norms, start=1):
                other = model.get_submodule(f"{start}.{ours}").state_dict()
                layer.get_submodule(f"norm{place}").load_state_dict(other)
            for theirs, ours in (("linear1", "up"), ("linear2", "down")):
                other = model.get_submodule(f"{start}.feed_forward.{ours}").state_dict()
                layer.get_submodule(theirs).load_state_dict(other)
    return encoder.eval(), decoder.eval()


def test_transformer_equals_that_of_torch() -> None:
    """Post-norm layers with a norm after the last, of both stacks, and fixed positions."""
    model = build(TRANSFORMER)
    with torch.no_grad():
        encoder, decoder = torchs(model)
        source, target = (model.position(model.embedding(each))[0] for each in (SOURCE, TARGET))
        padding = MASK == 0
        memory = encoder(source, src_key_padding_mask=padding)
        later = nn.Transformer.generate_square_subsequent_mask(20)
        read = decoder(target, memory, tgt_mask=later, memory_key_padding_mask=padding)
        expected = model.head(read * 32**-0.5)
        torch.testing.assert_close(scores(model), expected)
        torch.testing.assert_close(model(**BATCH), summed(expected, 0.5))


def test_padding_of_the_source_changes_nothing() -> None:
    for section in (T5, TRANSFORMER):
        model = build(section)
        other = torch.where(MASK == 1, SOURCE, 3)
        torch.testing.assert_close(model(**BATCH), model(**BATCH | {"input_ids": other}))


@pytest.mark.parametrize(
    ("section", "deviations"),
    [
        (T5, (1.0, (32 * 6) ** -0.5, 32**-0.5, 48**-0.5)),
        (TRANSFORMER, (0.88, (2 / 72 / 288) ** 0.5, (2 / 9 / 288) ** 0.5, (2 / 80) ** 0.5)),
    ],
    ids=["t5", "transformer"],
)
def test_initial_weights_have_the_stated_spread(
    section: dict[str, Any], deviations: tuple[float, ...]
) -> None:
    """Of embedding, query, key and the way out of a feed-forward network, with 32 heads."""
    model = build_model(section | {"num_heads": 32}, seed=0)
    names = ("embedding", "decoder.0.attention.query", "encoder.1.attention.key")
    for name, expected in zip((*names, "decoder.2.feed_forward.down"), deviations, strict=True):
        weight = model.get_parameter(f"{name}.weight")
        assert weight.std().item() == pytest.approx(expected, rel=0.1)


MUP = {
    "mup_base_d_model": 8,
    "mup_base_d_ff": 16,
    "embeddings_alpha": 3.0,
    "encoder_attention_logits_alpha": 4.0,
    "decoder_attention_logits_alpha": 5.0,
    "output_logits_alpha": 2.0,
}
"""A quarter of the width, and a third of the filters, of T5."""


def test_mup_scales_embeddings_scores_and_rates() -> None:
    """Queries and keys shrink with the root of the width each, and scores with heads' sizes."""
    model, plain = build(T5, **MUP), build(T5)
    names = dict(plain.named_parameters())
    with torch.no_grad():
        names["embedding.weight"].mul_(3 * 32**0.5)
        for stack, alpha in (("encoder", 4.0), ("decoder", 5.0)):
            for name in (each for each in names if each.startswith(f"{stack}.")):
                if name.endswith("query.weight"):
                    names[name].mul_(alpha / 6 / 4)
    head = 2 / 4**0.5 / (32**-0.5 * 3 * 32**0.5)  # of the tied vectors, without their factors
    torch.testing.assert_close(scores(model), scores(plain) * head)
    rates = model.config.learning_rate_scales
    assert rates["embedding"] == rates["decoder_qkv_projection"] == 0.5
    assert rates["encoder_input_ffn"] == 0.25
    assert rates["decoder_output_ffn"] == pytest.approx(1 / 3)
    assert set(rates) <= set(LEARNING_RATE_GROUPS)


def test_mup_shrinks_what_layers_add() -> None:
    """With the root of twice their number, of each stack."""
    model = build_model(T5 | MUP | {"num_heads": 32}, seed=0)
    for name, expected in (
        ("embedding", 32**-0.5),
        ("encoder.0.attention.output", (32 * 4) ** -0.5),
        ("decoder.2.cross_attention.output", (32 * 6) ** -0.5),
        ("decoder.1.feed_forward.down", (48 * 6) ** -0.5),
    ):
        std = model.get_parameter(f"{name}.weight").std().item()
        assert std == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("section", [T5, *nightly(TRANSFORMER)], ids=["t5", "transformer"])
def test_training_step_compiles_with_dropout(section: dict[str, Any]) -> None:
    """From shapes alone: every op has a kernel, every weight a gradient.

    A second layer of the decoder reads the position bias of the first one, as any further layer.
    """
    few = {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 2}
    twice = {"dropout_rate": 0.1, "use_pre_encoder_decoder_dropout": True}
    example = training_example(section | few | twice, micro_batch_size=3)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=3, num_micro_batches=2, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    assert set(compiled.program.trained) == {n for n, _ in example.model.named_parameters()}


def test_evaluation_counts_right_tokens() -> None:
    model = build(T5).eval()
    assert model.metrics is not None
    best = scores(model).argmax(-1)
    model(**BATCH | {"labels": torch.where(torch.arange(20) < 2, best, (best + 1) % 40)})
    assert float(model.metrics.accuracy) == pytest.approx(6 / 33)


def test_long_sequences_are_refused() -> None:
    for name in ("input_ids", "decoder_input_ids"):
        with raises(ConfigError, "sequence-too-long"):
            build(T5)(**BATCH | {name: torch.zeros(3, 31, dtype=torch.int64)})


@pytest.mark.parametrize(
    ("section", "change", "key"),
    [
        (T5, {"hidden_size": 8}, "hidden_size"),
        (T5, {"position_embedding_type": "rotary"}, "position_embedding_type"),
        (T5, {"tgt_vocab_size": 30}, "share_encoder_decoder_embedding"),
        (T5, {"mup_base_d_model": 8}, "mup_base_d_ff"),
        (TRANSFORMER, MUP, "use_transformer_initialization"),
        (TRANSFORMER, {"encoder_nonlinearity": "gelu"}, "use_ffn_bias"),
    ],
)
def test_other_models_are_refused(
    section: dict[str, Any], change: dict[str, object], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build_model(section | change, seed=0)
    assert key in f"{caught.value.what} {caught.value.rule}"
