"""The vendor's names of parameters, for which stock filters are written."""

from __future__ import annotations

from tests.support.runs.tiny_training import GPT, LLAMA
from waferstream.workload.models import build_model
from waferstream.workload.published_names import published_name


def test_matrices_of_gpt_have_published_names() -> None:
    model = build_model(GPT | {"num_hidden_layers": 1}, seed=0)
    names = [name for name, parameter in model.named_parameters() if parameter.ndim > 1]
    layer = "transformer_decoder.layers.0"
    assert [published_name(name) for name in names] == [
        "embedding_layer.word_embeddings.weight",
        "embedding_layer.position_embeddings.embed.weight",
        f"{layer}.self_attn.proj_q_dense_layer.weight",
        f"{layer}.self_attn.proj_k_dense_layer.weight",
        f"{layer}.self_attn.proj_v_dense_layer.weight",
        f"{layer}.self_attn.proj_output_dense_layer.weight",
        f"{layer}.ffn.ffn.0.linear_layer.weight",
        f"{layer}.ffn.ffn.1.linear_layer.weight",
    ]


def test_gate_and_output_head_have_published_names() -> None:
    model = build_model(LLAMA | {"num_hidden_layers": 1}, seed=0)
    names = {published_name(name) for name, _ in model.named_parameters()}
    assert "lm_head.weight" in names
    assert "transformer_decoder.layers.0.ffn.ffn.0.linear_layer_for_glu.weight" in names


def test_parts_of_a_model_have_published_names() -> None:
    """Those of a language model that reads images, of which there may be several encoders."""
    layer, encoder = "feed_forward.up.weight", "encoder.transformer_encoder"
    assert [
        published_name(name)
        for name in (
            "text_model.head.weight",
            f"text_model.decoder.3.{layer}",
            f"image_model.encoder.0.{layer}",
            f"image_model.image_model_list.encoder_1.encoder.0.{layer}",
            "image_model.image_model_list.projection_1.layers.0.weight",
            "image_model.projection.layers.0.weight",
        )
    ] == [
        "text_model.lm_head.weight",
        "text_model.transformer_decoder.layers.3.ffn.ffn.0.linear_layer.weight",
        f"image_model.{encoder}.layers.0.ffn.ffn.0.linear_layer.weight",
        f"image_model.image_model_list.1.0.{encoder}.layers.0.ffn.ffn.0.linear_layer.weight",
        "image_model.image_model_list.1.1.layers.0.weight",
        "image_model.projection.layers.0.weight",
    ]
