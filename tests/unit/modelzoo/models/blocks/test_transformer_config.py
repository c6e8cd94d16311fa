"""Model keys have the vendor's defaults, and inconsistent values are refused."""

import pytest

from modelzoo.models.gpt.config import GptConfig
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError

MEMORY = {
    "attn_memory_chunk_size": 4, "num_memory_tokens_per_chunk": 2, "add_chunked_attn_mask": True,
}  # fmt: skip


def test_config_defaults_are_those_of_the_vendor() -> None:
    """An empty model section is GPT-2 small (Model Zoo 2.10, ``models/nlp/gpt2``)."""
    config = GptConfig()
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (50257, 768, 12)
    assert (config.head_dim, config.num_kv_heads, config.rotated_dim) == (64, 12, 64)


def test_multiquery_attention_has_one_kv_head_by_default() -> None:
    """Without extra parameters all queries share the keys and values of one head."""
    shared = GptConfig(attention_module="multiquery_attention")
    assert shared.num_kv_heads == 1


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"num_heads": 7}, "num_heads"),
        ({"rotary_dim": 3}, "rotary_dim"),
        ({"rotary_dim": 66}, "rotary_dim"),
        ({"hidden_size": 36, "rotary_dim": None}, "rotary_dim"),
        ({"extra_attention_params": {"num_kv_groups": 5}}, "extra_attention_params"),
        (
            {"attention_module": "aiayn_attention", "extra_attention_params": {}},
            "extra_attention_params",
        ),
        ({"loss_weight": 0.5}, "loss_weight"),
        ({"dropout_rate": 1.0}, "dropout_rate"),
        ({"position_embedding_type": "sines"}, "position_embedding_type"),
        ({"attention_sink_tokens": 4}, "attention_sink_tokens"),
        (
            {"sliding_window_every_other_decoder_layer": True},
            "sliding_window_every_other_decoder_layer",
        ),
        (
            {"pos_scaling_type": "longrope", "pos_scaling_extra_args": {"long": 1}},
            "pos_scaling_extra_args.long",
        ),
        ({"pos_scaling_type": "yarn"}, "original_max_position_embeddings"),
        ({"attention_inner_dim": 100, "num_heads": 12}, "num_heads"),
        ({"moe": {"num_experts": 2, "top_k": 3}}, "moe.top_k"),
        ({"moe": {"routing_algorithm": "chance"}}, "moe.routing_algorithm"),
        (
            {"moe": {"top_k": 2, "num_experts": 4, "routing_algorithm": "hash"}},
            "moe.routing_algorithm",
        ),
        (
            {"moe": {"num_shared_experts": 1, "routing_algorithm": "uniform"}},
            "moe.routing_algorithm",
        ),
        (
            {"moe": {"load_balancing_loss_coef": 1, "router_selection_nonlinearity": "sinkhorn"}},
            "moe.router_selection_nonlinearity",
        ),
        ({"attention_sliding_window_length": 4, "attention_chunk_size": 4}, "attention_chunk_size"),
        (
            {"attention_vertical_column_spacing": 4, "attention_vertical_column_width": 1},
            "attention_vertical_column_width",
        ),
        ({"fixed_sparse_attention": {"num_verts": 4}}, "fixed_sparse_attention"),
        ({"fixed_sparse_attention": {"num_verts": 5, "vert_size": 1}}, "fixed_sparse_attention"),
        ({"memory_tokens": MEMORY, "position_embedding_type": "learned"}, "memory_tokens"),
        ({"memory_tokens": MEMORY, "attention_sliding_window_length": 4}, "memory_tokens"),
        ({"memory_tokens": MEMORY, "attention_chunk_size": 4}, "memory_tokens"),
        ({"memory_tokens": MEMORY, "moe": {"num_experts": 2}}, "moe"),
        (
            {"mup_base_hidden_size": 1, "mup_base_filter_size": 1, "lr_adjustment_groups": {}},
            "mup_base_filter_size",
        ),
        ({"initializer": {"name": "eye"}}, "initializer"),
        (
            {"mup_base_hidden_size": 1, "mup_base_filter_size": 1, "output_logits_scale": 2},
            "output_logits_scale",
        ),
        (
            {"mup_base_hidden_size": 1, "mup_base_filter_size": 1, "initializer": "zeros"},
            "initializer",
        ),
        ({"boundary_casting": True}, "boundary_casting"),
    ],
)
def test_inconsistent_config_is_refused(section: dict[str, object], key: str) -> None:
    """The error names the key to change."""
    rotary = {"position_embedding_type": "rotary", "attention_module": "multiquery_attention"}
    with pytest.raises(ConfigError) as caught:
        validate(GptConfig, rotary | section, "trainer.init.model")
    assert f"'{key}'" in caught.value.what


@pytest.mark.parametrize("key", ["mup_base_hidden_size", "mup_base_filter_size"])
def test_mup_without_one_of_its_widths_is_refused(key: str) -> None:
    """The rule names both."""
    with pytest.raises(ConfigError) as caught:
        validate(GptConfig, {key: 256}, "trainer.init.model")
    assert caught.value.rule == "muP needs mup_base_hidden_size and mup_base_filter_size"


def test_unsupported_vendor_key_is_refused() -> None:
    """A setting that would change the model is never ignored."""
    with pytest.raises(ConfigError) as caught:
        validate(GptConfig, {"rel_distance_mode": "capped"}, "trainer.init.model")
    assert "'rel_distance_mode'" in caught.value.what
