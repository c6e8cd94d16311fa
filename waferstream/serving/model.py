"""The model of a folder that a training has left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from appliance.checkpoints.folder import CheckpointFolder
from csnode.inference.stage import Scores
from waferstream.baselines.wafer_inference import Decoder
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.serving.text import ByteText
from waferstream.training.checkpoints.restoring import load_weights
from waferstream.training.setup.model import make_model

LATEST = "latest_run.log"
"""A link in the folder of a model to the log of its last run, whose folder has its parameters."""


@dataclass(frozen=True)
class ServedModel:
    """A model that answers tokens."""

    name: str
    checkpoint: Path
    scores: Scores
    text: ByteText
    context: int
    shape: Decoder
    """What the emulated machine is asked for."""


def load_model(folder: Path) -> ServedModel:
    """Load the newest checkpoint of a folder into the model that was trained.

    Raises:
        ConfigError: The folder has no run or no checkpoint, or its model does not answer text.
        CheckpointError: The checkpoint is damaged, or not of the model.
    """
    init = load_params(_params_of(folder)).trainer.init
    checkpoint = CheckpointFolder(folder, init.checkpoint.checkpoint_name).newest()
    if checkpoint is None:
        raise ConfigError(
            "a folder to serve must have a checkpoint",
            code="nothing-to-serve",
            where=str(folder),
            remedy="train first: python run.py --params params.yaml --model_dir model_dir",
        )
    module = make_model(init).eval()
    logits, config = getattr(module, "logits", None), getattr(module, "config", None)
    if logits is None or config is None:
        raise _no_answers(folder, type(module).__name__, "a decoder, which gives scores of tokens")
    text = ByteText()
    if config.vocab_size != text.vocabulary:
        raise _no_answers(
            folder, f"a vocabulary of {config.vocab_size}", "a vocabulary of 256: text as bytes"
        )
    load_weights(module, checkpoint)

    def scores(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = logits(tokens, position_ids=positions)
        return found

    shape = Decoder(
        dim=config.hidden_size,
        ffn=config.filter_size,
        layers=config.num_hidden_layers,
        kv_dim=config.num_kv_heads * config.head_dim,
    )
    return ServedModel(
        folder.resolve().name, checkpoint, scores, text, config.max_position_embeddings, shape
    )


def _params_of(folder: Path) -> Path:
    """Return the configuration of the last run of a folder."""
    params = (folder / LATEST).resolve().parent / "trainer_params.yaml"
    if not (folder / LATEST).exists() or not params.exists():
        raise ConfigError(
            "a folder to serve must be that of a trained model",
            code="nothing-to-serve",
            where=str(folder),
            rule=f"model_dir of a run, which has {LATEST}",
            remedy="train first: python run.py --params params.yaml --model_dir model_dir",
        )
    return params


def _no_answers(folder: Path, value: str, rule: str) -> ConfigError:
    return ConfigError(
        "the model cannot answer text",
        code="model-without-answers",
        where=str(folder),
        value=value,
        rule=rule,
        remedy="train the model of params.yaml, or another decoder on TextDataProcessor",
    )
