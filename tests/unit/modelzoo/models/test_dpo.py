"""Preference optimization has the losses that plain PyTorch has with transformers' LLaMA."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from cstorch.metrics.metric import Metric
from modelzoo.converters.llama_families import LLAMA
from modelzoo.converters.weights import to_ours
from modelzoo.models.dpo import DpoConfig, DpoModel, log_probabilities
from modelzoo.models.gpt.model import GptModel
from tests.support.errors import raises
from tests.support.models.tiny_models import SIZES
from tests.support.models.tiny_models import TOKENS as VOCABULARY
from tests.support.models.transformers_llama import LLAMA_KEYS, THEIR_SIZES, theirs
from tests.support.runs.tiny_training import WIDE_GPT
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.config.sections.lora import LoraConfig
from waferstream.core.errors import ConfigError
from waferstream.numerics.precision import StreamPrecision
from waferstream.training.setup.model import LoraLinear, add_lora
from waferstream.training.setup.parameter_groups import learning_rate_factors
from waferstream.workload.models import build_model, model_config, training_example

GENERATOR = torch.Generator().manual_seed(0)
TOKENS = torch.randint(40, (3, 2, 9), generator=GENERATOR)
MASK = torch.tensor([[[0, 0, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1]]] * 3)
MASK[1, 0, :4] = 0


def build(policy: dict[str, Any] | None = None, **dpo: Any) -> DpoModel:
    section = {"name": "dpo", "policy_model": LLAMA_KEYS | (policy or {}), "dpo": dpo}
    model = build_model(section, seed=0)
    assert isinstance(model, DpoModel)
    return model


def batch() -> dict[str, torch.Tensor]:
    """Return three pairs of responses of at most eight tokens."""
    parts = {"input_ids": TOKENS[..., :-1], "attention_mask": MASK, "labels": TOKENS[..., 1:]}
    sides = enumerate(("chosen", "rejected"))
    return {f"{side}_{name}": part[:, n] for n, side in sides for name, part in parts.items()}


def take_over(ours: nn.Module | None, model: Any) -> None:
    """Copy the weights of a model of transformers."""
    assert isinstance(ours, GptModel)
    complete = model_config(LLAMA_KEYS).model_dump(by_alias=True)
    weights = {name: value for name, value in model.state_dict().items() if "inv_freq" not in name}
    ours.load_state_dict(to_ours(LLAMA.rules, weights, complete), strict=False)


def plain_log_probabilities(model: Any, side: int) -> torch.Tensor:
    """Return the sum over the tokens of a response, (3,)."""
    scores = model(TOKENS[:, side, :-1]).logits.log_softmax(-1)
    chosen = scores.gather(-1, TOKENS[:, side, 1:, None]).squeeze(-1)
    return chosen.masked_fill(MASK[:, side] == 0, 0.0).sum(-1)


def expected_loss(loss_type: str, beta: float, policy: Any, reference: Any | None) -> torch.Tensor:
    """Return the loss as the papers state it."""
    lengths = MASK.sum(-1) if loss_type == "ipo" else torch.ones(3, 2)
    models = (policy,) if reference is None else (policy, reference)
    ratios = [
        plain_log_probabilities(policy, side) / lengths[:, side]
        - sum(plain_log_probabilities(each, side) / lengths[:, side] for each in models[1:])
        for side in range(2)
    ]
    margin = ratios[0] - ratios[1]
    if loss_type == "hinge":
        return torch.maximum(torch.zeros(3), 1 - beta * margin).mean()
    if loss_type == "ipo":
        return ((margin - 0.5 / beta) ** 2).mean()
    if loss_type == "dpop":
        margin = margin - 5.0 * torch.maximum(torch.zeros(3), -ratios[0])
    return -torch.log(torch.sigmoid(beta * margin)).mean()


@pytest.mark.parametrize(
    ("loss_type", "beta", "is_free"),
    [
        ("sigmoid", 0.05, False),
        ("sigmoid", 0.05, True),
        ("hinge", 0.05, False),
        ("ipo", 0.5, False),
        ("dpop", 0.01, False),
    ],
)
def test_loss_equals_that_of_plain_pytorch(loss_type: str, beta: float, is_free: bool) -> None:
    """Of a policy and a reference with weights of their own; and so do the gradients."""
    model = build(beta=beta, loss_type=loss_type, reference_free=is_free)
    policy = theirs("LlamaForCausalLM", **THEIR_SIZES)
    reference = None if is_free else theirs("LlamaForCausalLM", **THEIR_SIZES)
    take_over(model.policy_model, policy)
    if reference is not None:
        with torch.no_grad():
            for parameter in reference.parameters():
                parameter.mul_(0.9)
        take_over(model.ref_model, reference)
    loss, expected = model(**batch()), expected_loss(loss_type, beta, policy, reference)
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
    loss.backward()
    expected.backward()
    ours = model.get_parameter("policy_model.norm.weight").grad
    torch.testing.assert_close(ours, policy.model.norm.weight.grad, atol=1e-4, rtol=1e-3)


def test_reference_begins_as_the_policy_and_is_frozen() -> None:
    """So the first loss is that of a coin."""
    model = build(beta=0.5)
    assert model.ref_model is not None
    assert model(**batch()).item() == pytest.approx(math.log(2), rel=1e-6)
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert trained == {f"policy_model.{name}" for name, _ in model.policy_model.named_parameters()}


def test_reference_is_not_adapted() -> None:
    """Matrices beside the weights of the policy alone are trained; the first loss is the same."""
    model = add_lora(build(), [LoraConfig(r=2)], seed=0)
    assert isinstance(model, DpoModel)
    assert model(**batch()).item() == pytest.approx(math.log(2), rel=1e-6)
    adapted = {name for name, each in model.named_modules() if isinstance(each, LoraLinear)}
    assert adapted
    assert all(name.startswith("policy_model.") for name in adapted)
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert all(name.startswith("policy_model.") for name in trained)
    assert model.ref_model is not None
    assert type(model.ref_model.head) is nn.Linear


def test_dropout_is_that_of_the_policy_alone() -> None:
    """Only if it is not disabled."""
    rates = {"dropout_rate": 0.5, "embedding_dropout_rate": 0.5, "attention_dropout_rate": 0.5}
    still, moving = build(rates), build(rates, disable_dropout=False)
    assert torch.equal(still(**batch()), build()(**batch()))
    assert not torch.equal(moving(**batch()), still(**batch()))
    assert moving.ref_model is not None
    assert {m.p for m in moving.ref_model.modules() if isinstance(m, nn.Dropout)} == {0.0}


def test_evaluation_states_rewards() -> None:
    """Means over pairs; log probabilities alone without a reference."""
    model = build(beta=0.5).eval()
    assert model.metrics is not None
    assert model.ref_model is not None
    with torch.no_grad():
        model.ref_model.head.weight.mul_(2.0)
    model(**batch())
    found = {each.name: float(each) for each in model.metrics.modules() if isinstance(each, Metric)}
    policy, reference = (
        log_probabilities(each, TOKENS[..., :-1], MASK, TOKENS[..., 1:], is_mean=False)
        for each in (model.policy_model, model.ref_model)
    )
    rewards = 0.5 * (policy - reference)
    margins = rewards[:, 0] - rewards[:, 1]
    assert found == pytest.approx(
        {
            "eval/logps_chosen": policy[:, 0].mean().item(),
            "eval/logps_rejected": policy[:, 1].mean().item(),
            "eval/rewards_chosen": rewards[:, 0].mean().item(),
            "eval/rewards_rejected": rewards[:, 1].mean().item(),
            "eval/rewards_accuracies": (margins > 0).float().mean().item(),
            "eval/rewards_margins": margins.mean().item(),
        }
    )
    free = build(reference_free=True).eval()
    free(**batch())
    assert free.metrics is not None
    assert len(free.metrics.rewards) == 0


def test_training_step_compiles() -> None:
    """With parallel layers; the weights of the policy have gradients."""
    policy = {**SIZES, **VOCABULARY, "name": "gptj", "rotary_dim": 4}
    section = {"name": "dpo", "policy_model": policy, "dpo": {}}
    example = training_example(section, micro_batch_size=3, sequence_length=8)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=3, num_micro_batches=2, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    names = {name for name, _ in example.model.named_parameters() if name.startswith("policy")}
    assert set(compiled.program.trained) == names


def test_width_scales_learning_rates_of_the_policy() -> None:
    config = model_config({"name": "dpo", "policy_model": WIDE_GPT, "dpo": {}})
    name = "policy_model.decoder.1.attention.query.weight"
    assert learning_rate_factors([name], config.learning_rate_scales, {}, None, "test") == {
        name: 0.25
    }


@pytest.mark.parametrize(
    ("policy", "dpo", "key"),
    [
        ({"name": "bert"}, {}, "policy_model"),
        ({"filters": 3}, {}, "filters"),
        ({"moe": {"num_experts": 2, "load_balancing_loss_coef": 0.1}}, {}, "policy_model"),
        ({}, {"loss_type": "dpop", "reference_free": True}, "dpo"),
        ({}, {"beta": 0}, "dpo.beta"),
    ],
)
def test_other_sections_are_refused(policy: dict[str, Any], dpo: dict[str, Any], key: str) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError) as caught:
        build(policy, **dpo)
    assert key in caught.value.what


def test_decoder_must_have_a_name() -> None:
    with raises(ConfigError, "not-allowed"):
        model_config(
            {"name": "dpo", "policy_model": {"hidden_size": 16, "num_heads": 2}, "dpo": {}}
        )


def test_inputs_are_those_of_both_responses() -> None:
    config = model_config({"name": "dpo", "policy_model": LLAMA_KEYS, "dpo": {}})
    assert isinstance(config, DpoConfig)
    assert [each.name for each in config.features(8)] == list(batch())
    assert {each.shape for each in config.features(8)} == {(8,)}
