"""Encoders, and families whose models are not decoders of tokens, as transformers publishes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from waferstream.workload.hugging_face import CONVERSIONS, read_hf
from waferstream.workload.models import build_model

SIZES: dict[str, Any] = {
    "vocab_size": 13,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}
FALCON = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
TOKENS = torch.arange(16).view(2, 8) * 5 % 11 + 2
ONES = torch.ones_like(TOKENS)
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def masked(ours: Any) -> torch.Tensor:
    segments = None if ours.embedding.segment is None else ONES * 0
    scores: torch.Tensor = ours.mlm(ours.encode(TOKENS, ONES, segments))
    return scores


def decoded(ours: Any) -> torch.Tensor:
    mask = torch.zeros(2, 1, 1, 8)
    scores: torch.Tensor = ours.decode(TOKENS, ours.encode(TOKENS, mask), mask)
    return scores


@dataclass(frozen=True)
class Case:
    """A model of transformers, its inputs, and what computes the same scores here."""

    kind: str
    config: dict[str, Any]
    inputs: dict[str, torch.Tensor]
    scores: Callable[[Any], torch.Tensor]
    output: str = "logits"


TEXT = {"input_ids": TOKENS, "attention_mask": ONES}
BOTH = {**TEXT, "decoder_input_ids": TOKENS}
CASES = {
    "bert": Case(
        "BertForPreTraining", {**SIZES, "max_position_embeddings": 8}, TEXT, masked,
        "prediction_logits",
    ),
    "bert-masked": Case("BertForMaskedLM", {**SIZES, "max_position_embeddings": 8}, TEXT, masked),
    "roberta": Case(
        "RobertaForMaskedLM", {**SIZES, "max_position_embeddings": 10, "type_vocab_size": 1,
                               "pad_token_id": 1}, TEXT, masked,
    ),
    "esm": Case(
        "EsmForMaskedLM",
        {**SIZES, "position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": 12,
         "token_dropout": True, "emb_layer_norm_before": False, "max_position_embeddings": 10},
        TEXT, masked,
    ),
    "falcon": Case(
        "FalconForCausalLM", {**FALCON, "max_position_embeddings": 8}, TEXT,
        lambda ours: ours.logits(TOKENS),
    ),
    "falcon-40b": Case(
        "FalconForCausalLM",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True,
         "max_position_embeddings": 8},
        TEXT, lambda ours: ours.logits(TOKENS),
    ),
    "falcon-11b": Case(
        "FalconForCausalLM",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2,
         "num_ln_in_parallel_attn": 1, "tie_word_embeddings": False},
        TEXT, lambda ours: ours.logits(TOKENS),
    ),
    "gpt_bigcode": Case(
        "GPTBigCodeForCausalLM",
        {"vocab_size": 13, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 8},
        TEXT, lambda ours: ours.logits(TOKENS),
    ),
    "gpt_bigcode-heads": Case(
        "GPTBigCodeForCausalLM",
        {"vocab_size": 13, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 8,
         "multi_query": False},
        TEXT, lambda ours: ours.logits(TOKENS),
    ),
    "t5": Case(
        "T5ForConditionalGeneration",
        {"vocab_size": 13, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4},
        BOTH, decoded,
    ),
    "t5-v1.1": Case(
        "T5ForConditionalGeneration",
        {"vocab_size": 13, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4,
         "num_decoder_layers": 2, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        BOTH, decoded,
    ),
    "vit": Case(
        "ViTForImageClassification",
        {**{k: v for k, v in SIZES.items() if k != "vocab_size"}, "image_size": 8, "patch_size": 4,
         "num_labels": 3},
        {"pixel_values": IMAGES}, lambda ours: ours.classify(IMAGES),
    ),
}  # fmt: skip


def theirs(case: Case) -> Any:
    """Return a model of transformers with random weights, biases too."""
    import transformers

    kind = getattr(transformers, case.kind)
    torch.manual_seed(0)
    model = kind(kind.config_class(**case.config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.mark.parametrize("name", CASES)
def test_converted_model_computes_the_same_scores(name: str, tmp_path: Path) -> None:
    """And converted back, transformers computes them again."""
    case = CASES[name]
    model = theirs(case)
    model.save_pretrained(tmp_path)
    family = CONVERSIONS[model.config.model_type]
    config = {**model.config.to_dict(), "architectures": [case.kind]}
    section = family.section(config)
    ours: Any = build_model(section, seed=0).eval()
    ours.load_state_dict(family.to_ours(read_hf(tmp_path), section))
    with torch.no_grad():
        expected = getattr(model(**case.inputs), case.output)
        torch.testing.assert_close(case.scores(ours), expected, rtol=1e-5, atol=1e-5)
    back = family.to_theirs(dict(ours.state_dict()), section)
    again = family.configuration(section)
    assert family.section(again) == section
    other = type(model)(type(model.config).from_dict(again)).eval()
    assert not other.load_state_dict(back, strict=False).unexpected_keys
    other.tie_weights()
    with torch.no_grad():
        torch.testing.assert_close(getattr(other(**case.inputs), case.output), expected)


def test_names_of_the_first_releases_are_known() -> None:
    """As those of google-bert/bert-base-uncased, whose heads the configuration does not name."""
    model = theirs(CASES["bert"])
    family = CONVERSIONS["bert"]
    section = family.section({**model.config.to_dict(), "architectures": ["BertForMaskedLM"]})
    early = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): weight
        for name, weight in model.state_dict().items()
    }
    early["bert.embeddings.position_ids"] = torch.arange(8.0)
    found = family.to_ours(early, section)
    assert torch.equal(found["embedding.norm.bias"], model.bert.embeddings.LayerNorm.bias)
    assert not any(name.startswith("nsp.") for name in found)


def test_layers_of_images_of_earlier_releases_are_known() -> None:
    """As those of google/vit-base-patch16-224."""
    model = theirs(CASES["vit"])
    family = CONVERSIONS["vit"]
    section = family.section(model.config.to_dict())
    early = {
        name.replace("vit.layers.", "vit.encoder.layer.")
        .replace("attention.o_proj.", "attention.output.dense.")
        .replace("attention.q_proj.", "attention.attention.query.")
        .replace("attention.k_proj.", "attention.attention.key.")
        .replace("attention.v_proj.", "attention.attention.value.")
        .replace(".mlp.fc1.", ".intermediate.dense.")
        .replace(".mlp.fc2.", ".output.dense."): weight
        for name, weight in model.state_dict().items()
    }
    expected = family.to_ours(model.state_dict(), section)
    found = family.to_ours(early, section)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", ["jais", "btlm"])
def test_scales_of_jais_become_ours(kind: str) -> None:
    """Its code is not in transformers; keys and names are those of the published files."""
    family = CONVERSIONS[kind]
    config = {
        "model_type": kind, "vocab_size": 13, "n_embd": 16, "n_layer": 1, "n_head": 4,
        "n_positions": 8, "n_inner": 24, "activation_function": "swiglu",
        "position_embedding_type": "alibi", "mup_output_alpha": 2.2, "mup_width_scale": 0.1,
        "mup_embeddings_scale": 14.6, "mup_scale_qk_dot_by_d": True, "tie_word_embeddings": True,
    }  # fmt: skip
    section = family.section(config)
    assert section["output_logits_scale"] == pytest.approx(0.22)
    assert section["embeddings_scale"] == 14.6
    assert family.section(family.configuration(section)) == section
    weights = build_model(section, seed=0).state_dict()
    theirs = family.to_theirs(dict(weights), section)
    assert theirs["transformer.h.0.mlp.c_fc2.weight"].shape == (16, 24)
    back = family.to_ours({**theirs, "transformer.relative_pe.slopes": torch.ones(4, 1)}, section)
    assert all(torch.equal(back[name], weights[name]) for name in weights)


IMAGE_TOKEN, PATCHES = 12, 4  # the first one is at no other place


def their_llava() -> Any:
    """Return transformers' LLaVA with random weights."""
    import transformers

    vision = transformers.CLIPVisionConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        image_size=8, patch_size=4,
    )  # fmt: skip
    text = transformers.LlamaConfig(**SIZES, max_position_embeddings=9)
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=IMAGE_TOKEN
    )
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def losses_of_llava(name: str, theirs: Any, ours: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both losses of two texts that begin with an image."""
    tokens = torch.cat([TOKENS % 11, TOKENS[:, :1] % 11], dim=1)
    counted = (torch.arange(8) > PATCHES).long().repeat(2, 1)
    whole = tokens.clone()
    whole[:, 1 : 1 + PATCHES] = IMAGE_TOKEN
    labels = torch.where(torch.cat([counted[:, :1] * 0, counted], dim=1) == 1, whole, -100)
    expected = theirs(input_ids=whole, pixel_values=IMAGES, labels=labels).loss
    batch = {"image_data": IMAGES}
    if name == "multimodal_simple":
        places = torch.arange(1, 1 + PATCHES).repeat(2, 1, 1)
        batch = {"image_data": IMAGES[:, None], "image_data_loc": places}
    found = ours(
        text_input_ids=tokens[:, :-1], labels=tokens[:, 1:], loss_mask=counted,
        key_padding_mask=counted * 0, **batch,
    )  # fmt: skip
    return found, expected


@pytest.mark.parametrize("name", ["llava", "multimodal_simple"])
def test_images_before_a_text_have_the_same_loss(name: str, tmp_path: Path) -> None:
    """As in the files of transformers, whose names differ from those of its classes."""
    theirs = their_llava()
    theirs.save_pretrained(tmp_path)
    family = CONVERSIONS[name]
    section = family.section(theirs.config.to_dict())
    ours: Any = build_model(section, seed=0).eval()
    weights = read_hf(tmp_path)
    ours.load_state_dict(family.to_ours(weights, section))
    with torch.no_grad():
        torch.testing.assert_close(*losses_of_llava(name, theirs, ours))
    back = family.to_theirs(dict(ours.state_dict()), section)
    same = {
        name.replace("vision_tower.", "vision_tower.vision_model."): w
        for name, w in weights.items()
    }
    assert all(torch.equal(back[name], same[name]) for name in back)
    assert family.section(family.configuration(section)) == section


def test_both_encoders_of_texts_are_converted() -> None:
    """Questions and passages have files of their own in transformers; their pooler has no part."""
    import transformers

    config = transformers.DPRConfig(**SIZES, max_position_embeddings=8)
    torch.manual_seed(0)
    question = transformers.DPRQuestionEncoder(config).eval()
    passage = transformers.DPRContextEncoder(config).eval()
    family = CONVERSIONS["dpr"]
    section = family.section(config.to_dict())
    ours: Any = build_model(section, seed=0).eval()
    ours.load_state_dict(family.to_ours({**question.state_dict(), **passage.state_dict()}, section))
    with torch.no_grad():
        for own, other in ((ours.question_encoder, question), (ours.ctx_encoder, passage)):
            torch.testing.assert_close(own(TOKENS, ONES, ONES * 0), other(**TEXT).pooler_output)
    back = family.to_theirs(dict(ours.state_dict()), section)
    assert not question.load_state_dict(
        {name: each for name, each in back.items() if name.startswith("question")}
    ).missing_keys
    assert family.section(family.configuration(section)) == section
