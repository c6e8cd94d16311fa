"""The vendor's keys of GPT models have the vendor's defaults, and fit together."""

import pytest

from modelzoo.models.gpt_config import GptConfig
from wsc.core.config import validate
from wsc.core.errors import ConfigError


def test_defaults_are_those_of_the_reference() -> None:
    """An empty model section is GPT-2 small (cluster_interface.md, section 2.4)."""
    config = GptConfig()
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (50257, 768, 12)
    assert (config.head_dim, config.num_kv_heads, config.rotated_dim) == (64, 12, 64)


def test_multiquery_attention_shares_one_head_unless_told() -> None:
    """Without extra parameters all queries share the keys and values of one head."""
    shared = GptConfig(attention_module="multiquery_attention")
    assert shared.num_kv_heads == 1


@pytest.mark.parametrize(
    ("section", "key", "rule"),
    [
        ({"num_heads": 7}, "num_heads", "divides hidden_size, which is 768"),
        ({"rotary_dim": 3}, "rotary_dim", "even and at most .* which is 64"),
        ({"rotary_dim": 66}, "rotary_dim", "even and at most .* which is 64"),
        ({"hidden_size": 36, "rotary_dim": None}, "rotary_dim", "which is 3"),
        (
            {"extra_attention_params": {"num_kv_groups": 5}},
            "extra_attention_params",
            "num_kv_groups",
        ),
        (
            {"attention_module": "aiayn_attention", "extra_attention_params": {}},
            "extra_attention_params",
            "goes with attention_module multiquery_attention",
        ),
        ({"loss_weight": 0.5}, "loss_weight", "goes with loss_scaling batch_size"),
        ({"dropout_rate": 1.0}, "dropout_rate", "less than 1"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type", "'learned' or 'rotary'"),
        ({"boundary_casting": True}, "boundary_casting", "False"),
    ],
)
def test_values_that_do_not_fit_together(section: dict[str, object], key: str, rule: str) -> None:
    """The error names the key that can be changed and the rule it breaks."""
    rotary = {"position_embedding_type": "rotary", "attention_module": "multiquery_attention"}
    with pytest.raises(ConfigError, match=rule) as caught:
        validate(GptConfig, rotary | section, "trainer.init.model")
    assert f"'{key}'" in caught.value.what


def test_unsupported_keys_of_the_vendor_are_unknown() -> None:
    """A setting that would change the model is never ignored."""
    with pytest.raises(ConfigError, match="unknown key 'mup_base_hidden_size'"):
        validate(GptConfig, {"mup_base_hidden_size": 256}, "trainer.init.model")
