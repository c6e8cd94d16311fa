"""The families of the Model Zoo that are run: their params files, scaled down, and their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from scripts.model_zoo.data import (
    LATENT,
    LENGTH,
    VOCABULARY,
    WriteData,
    write_bert,
    write_gpt,
    write_images,
    write_latents,
    write_t5,
)

BATCH_SIZE = 8

_WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "filter_size": 64}

_TEXT = {**_WIDTH, "max_position_embeddings": LENGTH, "vocab_size": VOCABULARY}

_GROUPS = {"extra_attention_params": {"num_kv_groups": 2}}


@dataclass(frozen=True)
class Family:
    """A params file below ``models``, and what replaces its model's sizes and its data."""

    params: str
    model: Mapping[str, Any]
    write_data: WriteData = write_gpt
    steps: int = 6
    learning_rate: float = 0.01
    callbacks: tuple[Mapping[str, Any], ...] = field(default=())


_MICRO_BATCHES = tuple(
    {f"Scoped{mode}Flags": {"csx.performance.micro_batch_size": 4}}
    for mode in ("Train", "Validate")
)

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        "nlp/gpt3/configs/Cerebras_GPT/111m.yaml",
        {**_TEXT, "name": "gpt2", "loss_weight": 1 / LENGTH},
    ),
    "gpt3": Family("nlp/gpt3/configs/Cerebras_GPT/111m.yaml", {**_TEXT, "loss_weight": 1 / LENGTH}),
    "gptj": Family("nlp/gptj/configs/params_gptj_6B.yaml", {**_TEXT, "rotary_dim": 8}),
    "llama": Family(
        "nlp/llama/configs/params_llama3p2_1b_msl_8k.yaml",
        {
            **_TEXT,
            **_GROUPS,
            "rotary_dim": 8,
            "pos_scaling_extra_args": {
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": LENGTH,
            },
        },
    ),
    "mistral": Family(
        "nlp/mistral/configs/params_mistral_7B_msl128k.yaml",
        {**_TEXT, **_GROUPS, "rotary_dim": 8, "attention_sliding_window_length": 8},
    ),
    "mixtral": Family("nlp/mixtral/configs/params_moe_111M_base.yaml", _TEXT),
    "falcon": Family("nlp/falcon/configs/params_falcon_7b.yaml", {**_TEXT, "rotary_dim": 8}),
    "bloom": Family("nlp/bloom/configs/params_bloom_7b.yaml", _TEXT),
    "starcoder": Family("nlp/starcoder/configs/params_starcoder_15b.yaml", _TEXT),
    "santacoder": Family("nlp/santacoder/configs/params_santacoder_1b.yaml", _TEXT),
    "gemma2": Family(
        "nlp/gemma2/configs/params_gemma2_9b_msl8k.yaml",
        {
            **_TEXT,
            **_GROUPS,
            "rotary_dim": 8,
            "attention_inner_dim": 32,
            "attention_sliding_window_length": 8,
        },
    ),
    "btlm": Family(
        "nlp/btlm/configs/params_btlm_2p7b_2k.yaml", {**_TEXT, "loss_weight": 1 / LENGTH}
    ),
    "jais": Family("nlp/jais/configs/params_jais_13b.yaml", {**_TEXT, "loss_weight": 1 / LENGTH}),
    "bert": Family("nlp/bert/configs/bert_base_MSL128.yaml", _TEXT, write_bert),
    "t5": Family(
        "nlp/t5/configs/t5_3B.yaml",
        {
            "src_vocab_size": VOCABULARY,
            "extra_ids": 8,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "d_kv": 8,
            "num_heads": 4,
            "d_ff": 64,
            "d_model": 32,
            "src_max_position_embeddings": LENGTH,
            "tgt_max_position_embeddings": LENGTH,
        },
        write_t5,
    ),
    "vit": Family(
        "vision/vision_transformer/configs/params_vit_base_patch_16_imagenet_1k.yaml",
        {**_WIDTH, "image_size": [LENGTH, LENGTH], "patch_size": [4, 4]},
        write_images,
        callbacks=_MICRO_BATCHES,
    ),
    "dit": Family(
        "vision/dit/configs/params_dit_small_patchsize_2x2.yaml",
        {
            **_WIDTH,
            "frequency_embedding_size": 32,
            "vae": {
                "block_out_channels": [32, 32, 32, 32],
                "latent_size": [LATENT, LATENT],
                "sample_size": 8 * LATENT,
            },
        },
        write_latents,
        steps=30,
    ),
}


def small_params(checkout: Path, name: str, folder: Path) -> dict[str, Any]:
    """Return the family's params file, scaled down, and write its data below ``folder``."""
    family = FAMILIES[name]
    source = checkout / "src" / "cerebras" / "modelzoo" / "models" / family.params
    params: dict[str, Any] = yaml.safe_load(source.read_text())
    trainer = params["trainer"]
    init = trainer["init"]
    _merge(init["model"], family.model)
    init |= {
        "backend": {"backend_type": "CSX"},
        "callbacks": list(family.callbacks),
        "checkpoint": {"steps": family.steps // 2},
        "logging": {"log_steps": 1},
        "model_dir": str(folder / "model_dir"),
        "schedulers": [{"ConstantLR": {"learning_rate": family.learning_rate}}],
        "seed": 1,
    }
    data = folder / "data"
    data.mkdir(parents=True)
    loader = {"batch_size": BATCH_SIZE, "shuffle": False, **family.write_data(data)}
    trainer["fit"] = {"train_dataloader": loader, "val_dataloader": dict(loader)}
    for section in ("validate", "validate_all"):
        trainer.pop(section, None)
    return params


def _merge(section: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Replace values of a section, and of the sections in it."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(section.get(key), dict):
            _merge(section[key], value)
        else:
            section[key] = value
