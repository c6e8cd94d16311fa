"""Train models of a checkout of the vendor's Model Zoo with its own trainer, at small sizes.

    python -m scripts.model_zoo --checkout DIR [--family gpt2 ...] [--out model_zoo_runs]

For each family the script scales one of the checkout's own params files down, writes a small data
set, runs ``waferstream exec -m cerebras.modelzoo.cli.main fit`` for a few steps, and again to
resume from the last checkpoint. Sizes, data, the learning rate, the number of steps and how often
a loss is printed are replaced; optimizer, precision, callbacks and checkpoints are the file's. The
requirements of the Model Zoo must be importable (docs/compatibility.md lists them).
Exit codes: 0 every run ended and its loss fell, 1 otherwise.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.exec_runs import run_exec
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
from waferstream.core.events import TrainProgress

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


_MICRO_BATCH = "csx.performance.micro_batch_size"

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
        "logging": {"log_steps": 1},
        "model_dir": str(folder / "model_dir"),
        "schedulers": [{"ConstantLR": {"learning_rate": family.learning_rate}}],
        "seed": 1,
    }
    _shrink_micro_batches(init.get("callbacks", []))
    data = folder / "data"
    data.mkdir(parents=True)
    loader = {"batch_size": BATCH_SIZE, "shuffle": False, **family.write_data(data)}
    trainer["fit"] = {"train_dataloader": loader, "val_dataloader": dict(loader)}
    for section in ("validate", "validate_all"):
        trainer.pop(section, None)
    return params


def _shrink_micro_batches(callbacks: list[dict[str, Any]]) -> None:
    """Halve the batch where a file states a micro-batch that is larger."""
    for callback in callbacks:
        for flags in callback.values():
            if isinstance((flags or {}).get(_MICRO_BATCH), int):
                flags[_MICRO_BATCH] = BATCH_SIZE // 2


def _merge(section: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Replace values of a section, and of the sections in it."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(section.get(key), dict):
            _merge(section[key], value)
        else:
            section[key] = value


@dataclass(frozen=True)
class Outcome:
    """The losses of a run and of its continuation; None where the run failed."""

    first: float | None
    last: float | None
    resumed: float | None
    checkpoint: str | None

    @property
    def is_good(self) -> bool:
        """Whether both runs have ended, and the loss of the first fell."""
        if self.first is None or self.last is None or self.resumed is None:
            return False
        return self.last < self.first


def main() -> int:
    """Run the families of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--out", type=Path, default=Path("model_zoo_runs"))
    typed = parser.parse_args()
    print(f"{'family':10} {'first':>8} {'last':>8} {'resumed':>8}  checkpoint")
    outcomes = []
    for family in typed.family:
        outcome = train(typed.checkout.resolve(), family, typed.out.resolve() / family)
        numbers = (outcome.first, outcome.last, outcome.resumed)
        shown = " ".join("  failed" if x is None else f"{x:8.4f}" for x in numbers)
        print(f"{family:10} {shown}  {outcome.checkpoint}", flush=True)
        outcomes.append(outcome)
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def train(checkout: Path, family: str, folder: Path) -> Outcome:
    """Train a family in a folder that is made anew, and resume it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    params = small_params(checkout, family, folder)
    steps = FAMILIES[family].steps
    losses = [run(checkout, folder, params, steps)]
    losses.append(run(checkout, folder, params, steps // 2) if losses[0] else [])
    saved = sorted((folder / "model_dir").glob("*.mdl"), key=lambda path: path.stat().st_mtime)
    return Outcome(
        first=losses[0][0] if losses[0] else None,
        last=losses[0][-1] if losses[0] else None,
        resumed=losses[1][-1] if losses[1] else None,
        checkpoint=saved[-1].name if saved else None,
    )


def run(checkout: Path, folder: Path, params: dict[str, Any], steps: int) -> list[float]:
    """Train some steps, from the last checkpoint if there is one; return the losses, or none."""
    init = params["trainer"]["init"]
    bounds = {"num_steps": steps, "eval_frequency": steps, "eval_steps": 2}
    others = ("max_steps", "num_epochs", "steps_per_epoch")
    init["loop"] = {**{k: v for k, v in init["loop"].items() if k not in others}, **bounds}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump(params))
    words = ["-m", "cerebras.modelzoo.cli.main", "fit", str(file)]
    output = run_exec(words, folder, f"{steps}_steps.log", checkout / "src")
    return [float(found["loss"]) for found in TrainProgress.PATTERN.finditer(output or "")]


if __name__ == "__main__":
    sys.exit(main())
