"""Small models of transformers, with random weights and the batches that train them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn

BATCH_SIZE = 6
SEQUENCE = 8
VOCAB = 64

Batch = dict[str, torch.Tensor]
Maker = Callable[[torch.Generator], Batch]


@dataclass(frozen=True)
class Case:
    """A model class of transformers, the sizes of its configuration, and its batches."""

    name: str
    model_class: str
    sizes: Mapping[str, Any]
    make_batch: Maker
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of forward, next to the batch

    def model(self) -> nn.Module:
        """Return a model in training mode, so that its dropout draws."""
        torch.manual_seed(0)
        model_class = getattr(transformers, self.model_class)
        model: nn.Module = model_class(model_class.config_class(**self.sizes))
        return model.train()

    def batches(self, count: int) -> list[Batch]:
        """Return ``count`` global batches."""
        generator = torch.Generator().manual_seed(1)
        return [self.make_batch(generator) for _ in range(count)]


def integers(generator: torch.Generator, low: int, high: int, *shape: int) -> torch.Tensor:
    """Return integers of [low, high) for each sample."""
    return torch.randint(low, high, (BATCH_SIZE, *shape), generator=generator)


def tokens(generator: torch.Generator) -> Batch:
    """Return sequences whose labels are the tokens themselves."""
    ids = integers(generator, 3, VOCAB, SEQUENCE)
    return {"input_ids": ids, "labels": ids.clone()}


def padded(generator: torch.Generator) -> Batch:
    """Return sequences that end with two tokens of padding."""
    batch = tokens(generator)
    batch["labels"][:, -2:] = -100
    return {**batch, "attention_mask": (batch["labels"] != -100).long()}


def translation(generator: torch.Generator) -> Batch:
    """Return padded sequences with a shorter sequence as labels."""
    return {**padded(generator), "labels": integers(generator, 3, VOCAB, 5)}


def labelled(name: str, *shape: int) -> Maker:
    """Return a maker of float inputs of ``shape`` per sample with one of four labels."""

    def make(generator: torch.Generator) -> Batch:
        signal = torch.randn(BATCH_SIZE, *shape, generator=generator)
        return {name: signal, "labels": integers(generator, 0, 4)}

    return make


def transcribed(generator: torch.Generator) -> Batch:
    """Return spectra with a text as labels."""
    spectra = torch.randn(BATCH_SIZE, 4, 16, generator=generator)
    return {"input_features": spectra, "labels": integers(generator, 3, VOCAB, 5)}


def captioned(generator: torch.Generator) -> Batch:
    """Return images with a text that ends with the end token."""
    ids = integers(generator, 3, VOCAB, SEQUENCE)
    ids[:, -1] = 2
    return {"input_ids": ids, "pixel_values": torch.randn(BATCH_SIZE, 3, 8, 8, generator=generator)}


DEPTH = {"num_hidden_layers": 2, "num_attention_heads": 2}
LAYERS = {"hidden_size": 16, "intermediate_size": 32, **DEPTH}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT = {"vocab_size": VOCAB, "max_position_embeddings": 16, **LAYERS, **SPECIAL}
GPT = {"vocab_size": VOCAB, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2, **SPECIAL}
IMAGE = {"image_size": 8, "patch_size": 4, "num_labels": 4, **LAYERS}
ENCODER_DECODER = {
    **{"vocab_size": VOCAB, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, **SPECIAL},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
    **{"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 1},
}
GROUPED = {"num_key_value_heads": 1}
LLAMA3 = {
    **{"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0},
    **{"high_freq_factor": 4.0, "original_max_position_embeddings": 8},
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
WINDOWED = {**GROUPED, "head_dim": 8, "sliding_window": 4}


DEEPSEEK = {
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1},
    **{"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4},
    **{"v_head_dim": 8, "first_k_dense_replace": 1, "moe_intermediate_size": 16},
    **{"num_key_value_heads": 2},
}
DELTA = {
    **{"layer_types": ["linear_attention", "full_attention"], "head_dim": 8},
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8},
    **{"linear_value_head_dim": 8, "shared_expert_intermediate_size": 16},
}
RECURRENT = {
    **{"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "use_cache": False},
    **SPECIAL,
}
XLSTM = {"num_blocks": 2, "num_heads": 2, "chunk_size": 4, "mode": "train"}
MAMBA2 = {
    **{"state_size": 4, "num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
    **{"use_cache": False},
}


def causal(name: str, prefix: str, make_batch: Maker = padded, /, **sizes: Any) -> Case:
    """Return a decoder whose configuration has the usual names."""
    return Case(name, f"{prefix}ForCausalLM", {**TEXT, **sizes}, make_batch)


def masked(name: str, prefix: str, /, **sizes: Any) -> Case:
    """Return an encoder with a loss over tokens."""
    return Case(name, f"{prefix}ForMaskedLM", {**TEXT, **sizes}, padded)


DECODERS = [
    Case("gpt2", "GPT2LMHeadModel", GPT, padded),
    Case("gpt2-eager", "GPT2LMHeadModel", {**GPT, "attn_implementation": "eager"}, padded),
    Case("gpt-j", "GPTJForCausalLM", {**GPT, "rotary_dim": 4}, padded),
    causal("gpt-neox", "GPTNeoX"),
    causal("llama", "Llama"),
    causal("llama-eager", "Llama", attn_implementation="eager"),
    causal("llama2-grouped-queries", "Llama", tokens, **GROUPED),
    causal("llama3-rope", "Llama", **GROUPED, rope_parameters=LLAMA3),
    causal("llama-dynamic-rope", "Llama", tokens, rope_parameters=DYNAMIC),
    causal("qwen2", "Qwen2", **GROUPED),
    causal("qwen3", "Qwen3", **GROUPED, head_dim=8),
    causal("gemma", "Gemma", **GROUPED, head_dim=8),
    causal("gemma2", "Gemma2", **WINDOWED),
    causal("gemma3", "Gemma3", **WINDOWED),
    causal("mistral", "Mistral", **GROUPED, sliding_window=4),
    causal("mixtral", "Mixtral", **GROUPED, num_local_experts=4, output_router_logits=True),
    causal("qwen3-moe", "Qwen3Moe", **GROUPED, **EXPERTS),
    causal("gpt-oss", "GptOss", tokens, **WINDOWED, num_local_experts=4, num_experts_per_tok=2),
    causal("falcon", "Falcon", new_decoder_architecture=True, num_kv_heads=1),
    causal("phi", "Phi"),
    causal("phi3", "Phi3", **GROUPED),
    causal("opt", "OPT", word_embed_proj_dim=16, ffn_dim=32, layerdrop=0.0),
    causal("bloom", "Bloom", n_layer=2, n_head=2),
    causal("mpt", "Mpt", d_model=16, n_layers=2, n_heads=2, max_seq_len=16),
    Case("mamba", "MambaForCausalLM", {**TEXT, "state_size": 4, "use_cache": False}, tokens),
    causal("olmo2", "Olmo2"),
    causal("starcoder2", "Starcoder2", **GROUPED),
    causal("cohere2", "Cohere2", **GROUPED, sliding_window=4),
    causal("granite", "Granite"),
    causal("glm4", "Glm4", head_dim=8, num_key_value_heads=2),
    causal("smollm3", "SmolLM3", **GROUPED, no_rope_layers=[1, 0]),
    causal("olmoe", "Olmoe", num_experts=4, num_experts_per_tok=2),
    causal("deepseek-v3", "DeepseekV3", **DEEPSEEK),
    causal("qwen3-next", "Qwen3Next", **GROUPED, **EXPERTS, **DELTA),
    causal("lfm2", "Lfm2", **GROUPED, layer_types=["conv", "full_attention"], block_multiple_of=8),
    Case("rwkv", "RwkvForCausalLM", {**RECURRENT, "context_length": 16}, tokens),
    Case("xlstm", "xLSTMForCausalLM", {**RECURRENT, **XLSTM}, tokens),
    Case("mamba2", "Mamba2ForCausalLM", {**TEXT, **MAMBA2}, tokens),
]
ENCODERS = [
    masked("bert", "Bert"),
    masked("roberta", "Roberta"),
    masked("deberta-v2", "DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    masked("modernbert", "ModernBert"),
    masked("electra", "Electra", embedding_size=16),
    masked("albert", "Albert", embedding_size=8),
]
SIGNALS = [
    Case("vit", "ViTForImageClassification", IMAGE, labelled("pixel_values", 3, 8, 8)),
    Case(
        "convnext",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "num_labels": 4},
        labelled("pixel_values", 3, 32, 32),
    ),
    Case(
        "resnet",
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 4}
        | {"layer_type": "basic"},
        labelled("pixel_values", 3, 16, 16),
    ),
    Case(
        "swin",
        "SwinForImageClassification",
        {"image_size": 16, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2]}
        | {"window_size": 2, "num_labels": 4},
        labelled("pixel_values", 3, 16, 16),
    ),
    Case(
        "clip",
        "CLIPModel",
        {"text_config": TEXT, "vision_config": IMAGE, "projection_dim": 8},
        captioned,
        {"return_loss": True},
    ),
    Case(
        "ast",
        "ASTForAudioClassification",
        {**IMAGE, "frequency_stride": 4, "time_stride": 4, "max_length": 16, "num_mel_bins": 8},
        labelled("input_values", 16, 8),
    ),
    Case("dinov2", "Dinov2ForImageClassification", IMAGE, labelled("pixel_values", 3, 8, 8)),
    Case(
        "mobilenet-v2",
        "MobileNetV2ForImageClassification",
        {"num_labels": 4, "depth_multiplier": 0.25, "finegrained_output": False},
        labelled("pixel_values", 3, 32, 32),
    ),
    Case(
        "regnet",
        "RegNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4}
        | {"num_labels": 4},
        labelled("pixel_values", 3, 16, 16),
    ),
    Case(
        "wav2vec2",
        "Wav2Vec2ForSequenceClassification",
        {**LAYERS, "conv_dim": [8, 8], "conv_stride": [4, 2], "conv_kernel": [8, 4]}
        | {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "num_labels": 4}
        | {"classifier_proj_size": 8, "layerdrop": 0.0, "apply_spec_augment": False},
        labelled("input_values", 128),
    ),
]
ENCODER_DECODERS = [
    Case(
        "bart",
        "BartForConditionalGeneration",
        {**ENCODER_DECODER, "max_position_embeddings": 16},
        translation,
    ),
    Case(
        "t5",
        "T5ForConditionalGeneration",
        {**TEXT, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
        | {"decoder_start_token_id": 0},
        translation,
    ),
    Case(
        "whisper",
        "WhisperForConditionalGeneration",
        {**ENCODER_DECODER, "num_mel_bins": 4}
        | {"max_source_positions": 8, "max_target_positions": 16},
        transcribed,
    ),
]
IMAGE_TOKEN, IMAGE_TOKENS = 63, 4


def illustrated(generator: torch.Generator) -> Batch:
    """Return texts that begin with an image, whose tokens have no label."""
    ids = integers(generator, 3, IMAGE_TOKEN, SEQUENCE)
    ids[:, 1 : 1 + IMAGE_TOKENS] = IMAGE_TOKEN
    labels = ids.masked_fill(ids == IMAGE_TOKEN, -100)
    pixels = torch.randn(BATCH_SIZE, 3, 8, 8, generator=generator)
    return {"input_ids": ids, "labels": labels, "pixel_values": pixels}


def marked(generator: torch.Generator) -> Batch:
    """Return illustrated texts that state which tokens are those of the image."""
    batch = illustrated(generator)
    return {**batch, "token_type_ids": (batch["input_ids"] == IMAGE_TOKEN).long()}


def spoken(generator: torch.Generator) -> Batch:
    """Return sounds with texts of several lengths, whose ends have no label."""
    labels = integers(generator, 1, 8, 5)
    labels[::2, 3:] = -100
    return {"input_values": torch.randn(BATCH_SIZE, 128, generator=generator), "labels": labels}


SPEECH = [
    Case(
        "wav2vec2-ctc",
        "Wav2Vec2ForCTC",
        {**LAYERS, "conv_dim": [8, 8], "conv_stride": [4, 2], "conv_kernel": [8, 4]}
        | {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "vocab_size": 8}
        | {"layerdrop": 0.0, "apply_spec_augment": False, "pad_token_id": 0}
        | {"ctc_loss_reduction": "mean"},
        spoken,
    )
]
SIGHT = {"image_size": 8, "patch_size": 4, "vision_use_head": False, **LAYERS}
VISION_LANGUAGE = [
    Case(
        "llava",
        "LlavaForConditionalGeneration",
        {"vision_config": {**SIGHT, "model_type": "clip_vision_model"}}
        | {"text_config": {**TEXT, "model_type": "llama"}}
        | {"image_token_id": IMAGE_TOKEN, "vision_feature_layer": -1},
        illustrated,
    ),
    Case(
        "paligemma",
        "PaliGemmaForConditionalGeneration",
        {"vision_config": {**SIGHT, "model_type": "siglip_vision_model"}}
        | {"text_config": {**TEXT, **GROUPED, "head_dim": 8, "model_type": "gemma"}}
        | {"image_token_id": IMAGE_TOKEN, "projection_dim": 16},
        marked,
    ),
    Case(
        "gemma3-images",
        "Gemma3ForConditionalGeneration",
        {"vision_config": {**SIGHT, "model_type": "siglip_vision_model"}}
        | {"text_config": {**TEXT, **WINDOWED, "model_type": "gemma3_text"}}
        | {"image_token_index": IMAGE_TOKEN, "mm_tokens_per_image": IMAGE_TOKENS},
        marked,
    ),
]
CASES = [*DECODERS, *ENCODERS, *SIGNALS, *ENCODER_DECODERS]
