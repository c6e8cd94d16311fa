"""Sizes of a model section that shrink together."""

from __future__ import annotations

from typing import Any

import pytest

from waferstream.config.shrinking.sizes import Sizes, model_width, shrunk_model

SIZES = Sizes(width=32, layers=2, original_width=4096, shrinks_data=True)


def test_widths_that_are_equal_stay_equal() -> None:
    """What the encoder of images returns is what the projector reads, and so on."""
    model = {
        "image_model": {"hidden_size": 1024, "num_hidden_layers": 24, "name": "ViTModel"},
        "projector": [{"input_unit": 1024, "layers_units": [4096, 4096]}],
        "text_model": {"hidden_size": 4096, "share_embedding_weights": False},
    }
    assert model_width(model) == 4096
    assert shrunk_model(model, SIZES) == {
        "image_model": {"hidden_size": 32, "num_hidden_layers": 2, "name": "ViTModel"},
        "projector": [{"input_unit": 32, "layers_units": [32, 32]}],
        "text_model": {"hidden_size": 32, "share_embedding_weights": False},
    }


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"num_heads": 32, "rotary_dim": 128}, {"num_heads": 4, "rotary_dim": 8}),
        ({"num_heads": 32, "rotary_dim": 32}, {"num_heads": 4, "rotary_dim": 2}),
        ({"num_heads": 6, "d_kv": 64}, {"num_heads": 4, "d_kv": 8}),
        ({"num_heads": 2}, {"num_heads": 2}),
    ],
    ids=["whole rotary", "part rotary", "d_kv", "few heads"],
)
def test_sizes_of_heads_follow_the_width(given: dict[str, Any], found: dict[str, Any]) -> None:
    assert shrunk_model({"hidden_size": 4096, **given}, SIZES) == {"hidden_size": 32, **found}


@pytest.mark.parametrize(("groups", "fewer"), [(1, 1), (8, 2), (32, 4)])
def test_groups_of_heads_stay_one_some_or_all(groups: int, fewer: int) -> None:
    section = {
        "hidden_size": 4096,
        "num_heads": 32,
        "extra_attention_params": {"num_kv_groups": groups},
    }
    assert shrunk_model(section, SIZES)["extra_attention_params"] == {"num_kv_groups": fewer}


def test_sizes_of_data_stay_where_the_data_are_here() -> None:
    sizes = Sizes(width=32, layers=2, original_width=4096, shrinks_data=False)
    given = {"vocab_size": 50257, "max_position_embeddings": 2048, "image_size": [224, 224]}
    assert shrunk_model({**given, "patch_size": [16, 16]}, sizes) == {
        **given,
        "patch_size": [16, 16],
    }
    assert shrunk_model({**given, "patch_size": [16, 16]}, SIZES) == {
        "vocab_size": 512,
        "max_position_embeddings": 128,
        "image_size": [128, 128],
        "patch_size": [16, 16],
    }
