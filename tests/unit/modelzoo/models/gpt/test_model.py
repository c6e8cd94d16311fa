"""Decoders attend to the past only, and their loss counts unmasked labels."""

import math

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from modelzoo.models.gpt.model import GptModel
from tests.support.errors import raises
from tests.support.models.tiny_models import FOUR_HEADS, NO_DROPOUT, TOKENS
from waferstream.core.errors import ConfigError
from waferstream.workload.models import build_model

GPT = {"name": "gpt2", **TOKENS, **FOUR_HEADS, **NO_DROPOUT}
LLAMA = GPT | {
    "name": "llama",
    "share_embedding_weights": False,
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    "nonlinearity": "swiglu",
    "attention_module": "multiquery_attention",
    "extra_attention_params": {"num_kv_groups": 2},
    "use_projection_bias_in_attention": False,
    "use_ffn_bias_in_attention": False,
    "use_ffn_bias": False,
}
GPTJ = {key: value for key, value in GPT.items() if key != "dropout_rate"} | {
    "name": "gptj",
    "rotary_dim": 4,
    "residual_dropout_rate": 0.0,
}
FAMILY = pytest.mark.parametrize("config", [GPT, LLAMA, GPTJ], ids=["gpt", "llama", "gptj"])

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    input_ids, labels = torch.randint(40, (2, 3, 8), generator=generator)
    return input_ids, torch.ones_like(input_ids), labels


def build(config: dict[str, object], **changes: object) -> GptModel:
    model = build_model(config | changes, seed=0)
    assert isinstance(model, GptModel)
    return model


@FAMILY
def test_untrained_loss_is_that_of_a_uniform_guess(config: dict[str, object], batch: Batch) -> None:
    """Its loss on random tokens is about that of a guess, ln(vocab_size)."""
    loss = build(config)(*batch)
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert abs(loss.item() - math.log(40)) < 0.2


@FAMILY
def test_logits_do_not_depend_on_later_tokens(config: dict[str, object], batch: Batch) -> None:
    """Changing a token leaves the scores before it, and only those, as they were."""
    model, (input_ids, _, _) = build(config), batch
    changed = input_ids.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 40
    before, after = model.logits(input_ids), model.logits(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@FAMILY
def test_positions_matter(config: dict[str, object]) -> None:
    """The scores depend on the order of earlier tokens."""
    one, other = build(config, initializer_range=0.5).logits(torch.tensor([[1, 2, 3], [2, 1, 3]]))
    assert not torch.allclose(one[2], other[2])


def test_loss_is_the_mean_over_counted_labels(batch: Batch) -> None:
    """Masked labels have no weight for any value; batch_size divides by sequences instead."""
    input_ids, mask, labels = batch
    mask = mask.clone()
    mask[:, 6:] = 0
    losses = nn.functional.cross_entropy(
        build(GPT).logits(input_ids).flatten(0, 1), labels.flatten(), reduction="none"
    )
    summed = losses.view(3, 8)[:, :6].sum()
    masked = labels.masked_fill(mask == 0, 0)
    torch.testing.assert_close(build(GPT)(input_ids, mask, masked), summed / 18)
    by_sequence = build(GPT, loss_scaling="batch_size", loss_weight=0.25)
    torch.testing.assert_close(by_sequence(input_ids, mask, masked), summed / 3 * 0.25)


def test_fully_masked_batch_has_no_loss_and_no_gradient(batch: Batch) -> None:
    """Zero, not 0/0."""
    model, (input_ids, mask, labels) = build(GPT), batch
    loss = model(input_ids, torch.zeros_like(mask), labels)
    loss.backward()
    assert loss.item() == 0
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


@FAMILY
def test_gradients_reach_every_parameter(config: dict[str, object], batch: Batch) -> None:
    """The loss depends on every registered parameter."""
    model = build(config)
    model(*batch).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_parameters_have_readable_names() -> None:
    """They appear in checkpoints and logs."""
    names = [name for name, _ in build(GPT, num_hidden_layers=1).named_parameters()]
    assert [name for name in names if name.endswith("weight")] == [
        "embedding.weight",
        "position.weight",
        "decoder.0.attention_norm.weight",
        "decoder.0.attention.query.weight",
        "decoder.0.attention.key.weight",
        "decoder.0.attention.value.weight",
        "decoder.0.attention.output.weight",
        "decoder.0.feed_forward_norm.weight",
        "decoder.0.feed_forward.up.weight",
        "decoder.0.feed_forward.down.weight",
        "norm.weight",
    ]


def test_share_embedding_weights_ties_the_head() -> None:
    """Tied, they are one tensor; otherwise the head has its own."""
    tied, untied = build(GPT), build(GPT, share_embedding_weights=False)
    assert tied.head.weight is tied.embedding.weight
    assert not torch.equal(untied.head.weight, untied.embedding.weight)


@FAMILY
def test_initialize_gives_the_stated_standard_deviations(config: dict[str, object]) -> None:
    """initializer_range, less by sqrt(2 L) where a layer adds to the residual stream."""
    model = build(config, hidden_size=128, num_heads=4, num_hidden_layers=8)
    spread = {name: tensor.std().item() for name, tensor in model.named_parameters()}
    assert spread["embedding.weight"] == pytest.approx(0.02, rel=0.05)
    assert spread["decoder.7.attention.query.weight"] == pytest.approx(0.02, rel=0.05)
    assert spread["decoder.7.attention.output.weight"] == pytest.approx(0.005, rel=0.05)
    assert spread["decoder.7.feed_forward.down.weight"] == pytest.approx(0.005, rel=0.05)
    assert model.get_parameter("norm.weight").eq(1).all()
    assert all(not p.any() for n, p in model.named_parameters() if n.endswith("bias"))


def test_sequence_longer_than_the_positions_is_refused() -> None:
    """With both numbers, instead of an index error from inside."""
    with raises(ConfigError, "sequence-too-long") as caught:
        build(GPT).logits(torch.zeros(1, 9, dtype=torch.int64))
    assert caught.value.value == "9, max_position_embeddings 8"


@FAMILY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_captured_graph_computes_the_same_bits(
    config: dict[str, object], batch: Batch, dtype: torch.dtype
) -> None:
    """Traced without weights, in the streamed dtype, then run: the same bits, and an fp32 loss."""
    model = build(config)
    weights = {name: tensor.detach().to(dtype) for name, tensor in model.named_parameters()}

    def step(weights: dict[str, torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = functional_call(model, weights, inputs)
        return loss

    with FakeTensorMode() as fake:
        fake_weights = {name: fake.from_tensor(tensor) for name, tensor in weights.items()}
        graph = make_fx(step)(fake_weights, *(fake.from_tensor(tensor) for tensor in batch))
    loss = graph(weights, *batch)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, model.to(dtype)(*batch))
