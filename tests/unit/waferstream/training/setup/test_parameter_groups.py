"""Groups of parameters: by weight decay, and by the tags that the optimizer gives."""

from __future__ import annotations

from typing import Any

from tests.support.errors import raises
from tests.support.runs.tiny_training import GPT, init_config
from waferstream.config.params import InitConfig
from waferstream.core.errors import ConfigError
from waferstream.training.setup.parameter_groups import parameter_groups
from waferstream.workload.models import build_model


def groups(*params: dict[str, Any]) -> dict[tuple[str, ...], set[str]]:
    """Return the names of the parameters of each group by its tags."""
    init: InitConfig = init_config(optimizer={"AdamW": {"lr": 0.1, "params": params}})
    model = build_model(GPT, seed=0)
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        group["tags"]: {names[parameter] for parameter in group["params"]}
        for group in parameter_groups(init, model)
    }


def test_tags_follow_globs_of_names() -> None:
    """Names here or at the vendor; a parameter may have several tags, and keeps that of its kind."""
    found = groups(
        {"params": ["decoder.0.*", "*.layers.1.*"], "tag": "layers"},
        {"params": "*self_attn*bias", "tag": "biases"},
    )
    assert found.keys() == {
        ("decay",),
        ("no_decay",),
        ("decay", "layers"),
        ("no_decay", "layers"),
        ("no_decay", "layers", "biases"),
    }
    assert "decoder.1.attention.query.bias" in found["no_decay", "layers", "biases"]
    assert "decoder.0.feed_forward.up.weight" in found["decay", "layers"]
    assert all(name.startswith("decoder.") for name in found["decay", "layers"])
    assert len(set.union(*found.values())) == sum(map(len, found.values()))


def test_glob_without_parameters_is_refused() -> None:
    with raises(ConfigError, "params-without-match") as caught:
        groups({"params": "decoder.9.*", "tag": "last"})
    assert "AdamW.params[0]" in str(caught.value.where)
