"""Maximal update parametrization: what changes with the width of a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from modelzoo.models.gpt.config import GptConfig
from modelzoo.models.gpt.model import GptModel
from tests.support.errors import raises
from tests.support.runs.tiny_training import GPT, WIDE_GPT
from waferstream.core.errors import ConfigError
from waferstream.training.setup.parameter_groups import learning_rate_factors
from waferstream.workload.models import build_model


def spread(model: torch.nn.Module, end: str) -> float:
    """Return the standard deviation of the weights whose names have an end."""
    found = [p for name, p in model.named_parameters() if name.endswith(end)]
    return float(torch.cat([p.detach().flatten() for p in found]).std())


def test_initial_weights_shrink_with_the_root_of_the_width() -> None:
    """Hidden weights by the ratio of their inputs, those of the residual stream by depth, too."""
    model = build_model(WIDE_GPT, seed=0)
    depth = (2 * WIDE_GPT["num_hidden_layers"]) ** -0.5
    assert spread(model, "embedding.weight") == pytest.approx(0.08, rel=0.05)
    assert spread(model, "attention.query.weight") == pytest.approx(0.08 / 2, rel=0.05)
    assert spread(model, "feed_forward.up.weight") == pytest.approx(0.08 / 2, rel=0.05)
    assert spread(model, "attention.output.weight") == pytest.approx(0.08 / 2 * depth, rel=0.05)
    assert spread(model, "down.weight") == pytest.approx(0.08 / 8**0.5 * depth, rel=0.05)


@pytest.mark.parametrize(("keys", "factor"), [({}, 0.5), ({"scale_output_logits_by_d": False}, 1)])
def test_scores_shrink_with_the_width(keys: dict[str, Any], factor: float) -> None:
    """Those of the head by the ratio or its root, those of attention by the size of a head."""
    tokens = torch.arange(8)[None]
    model = build_model(WIDE_GPT | keys, seed=0)
    assert isinstance(model, GptModel)
    by_width = model.logits(tokens)
    assert model.config.scores.scale == 1 / model.config.head_dim
    model.config = GptConfig.model_validate(
        {
            **WIDE_GPT,
            "mup_base_hidden_size": 64,
            "mup_base_filter_size": 16,
            "output_logits_alpha": 1,
        }
    )
    torch.testing.assert_close(by_width, factor * model.logits(tokens))


def test_model_of_the_base_width_is_the_plain_one() -> None:
    """But for the scores of attention, which are divided by the size of a head."""
    base = {"mup_base_hidden_size": GPT["hidden_size"], "mup_base_filter_size": GPT["filter_size"]}
    plain = build_model(GPT | {"scale_qk_dot_by_d": True}, seed=3)
    for one, other in zip(
        build_model(GPT | base, seed=3).parameters(), plain.parameters(), strict=True
    ):
        assert torch.equal(one, other)
    assert set(GptConfig.model_validate(GPT | base).learning_rate_scales.values()) == {1.0}


def test_learning_rates_of_groups() -> None:
    """The user's factor replaces that of the model."""
    names = ["embedding.weight", "decoder.0.attention.key.weight", "decoder.0.attention.key.bias"]
    scales = GptConfig.model_validate(WIDE_GPT).learning_rate_scales
    assert scales == {
        "decoder_attention": 1 / 4,
        "decoder_input_ffn": 1 / 4,
        "decoder_output_ffn": 1 / 8,
    }
    factors = learning_rate_factors(names, scales, {"embedding": 0.1}, None, "x")
    assert factors == {"embedding.weight": 0.1, "decoder.0.attention.key.weight": 0.25}
    assert learning_rate_factors(names, scales, {"decoder_attention": 1.0}, None, "x") == {}


@pytest.mark.parametrize(
    ("adjusted", "code"),
    [
        ({"decoder_atention": 1.0}, "unknown-group"),
        ({"decoder_kernel": 3.0}, "learning-rates-differ"),
    ],
)
def test_wrong_groups_are_refused(adjusted: dict[str, float], code: str) -> None:
    """An unknown one, and two that disagree on a parameter."""
    with raises(ConfigError, code):
        learning_rate_factors(
            ["decoder.0.attention.key.weight"], {"decoder_attention": 2.0}, adjusted, None, "x"
        )


def test_groups_of_the_file_replace_the_usual_ones() -> None:
    """They match names here and at the vendor, have a scale of their own, and may be adjusted."""
    groups = {
        "queries": {"param_filter_patterns": "*proj_q*weight", "scale": 0.5},
        "matrices": {"param_filter_patterns": ["*ffn*weight", "embedding.*"]},
    }
    config = GptConfig.model_validate(GPT | {"lr_adjustment_groups": groups})
    names = ["decoder.0.attention.query.weight", "embedding.weight", "norm.weight"]
    own, scales = config.learning_rate_groups, config.learning_rate_scales
    assert learning_rate_factors(names, scales, {}, own, "x") == {names[0]: 0.5}
    found = learning_rate_factors(names, scales, {"matrices": 3.0}, own, "x")
    assert found == {names[0]: 0.5, names[1]: 3.0}
    with raises(ConfigError, "unknown-group"):
        learning_rate_factors(names, scales, {"embedding": 3.0}, own, "x")


def test_scores_of_later_layers_are_divided_by_their_number() -> None:
    model = build_model(GPT | {"scale_qk_dot_by_layer_idx": True}, seed=0)
    assert isinstance(model, GptModel)
    scales = [m.scale for name, m in model.named_modules() if name.endswith(".attention")]
    plain = model.config.scores.scale
    assert scales == [plain / number for number in range(1, len(scales) + 1)]
