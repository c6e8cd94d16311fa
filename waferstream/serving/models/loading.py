"""The model of a folder or file: what a training has left, or others have published."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from appliance.checkpoints.folder import CheckpointFolder
from appliance.serving.proof import Scores
from waferstream.config.phases import load_params
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.machine.regions.decoder import Decoder
from waferstream.numerics.precision import DTYPES, NAMES
from waferstream.serving.models.gguf_file import GgufFile, packaged_file
from waferstream.serving.models.grammars import Grammars
from waferstream.serving.models.places import (
    PACKAGED,
    is_of_hugging_face,
    nothing_to_serve,
    params_of,
)
from waferstream.serving.models.text import ByteText, Text
from waferstream.serving.models.tokenizer import TokenizedText
from waferstream.training.checkpoints.restoring import fill, load_weights
from waferstream.training.setup.model import make_model
from waferstream.workload.hugging_face import CONVERSIONS, Weights, read_hf, read_json
from waferstream.workload.models import build_model


@dataclass(frozen=True)
class ServedModel:
    """A model that answers tokens.

    Attributes:
        name: That of its folder.
        weights: The file or folder of its weights.
        module: The decoder.
        scores: Its forward pass.
        text: How it reads and writes text.
        vocabulary: Its tokens, of which the text may know fewer.
        context: The most tokens of a sequence.
        token_bytes: What keys and values of a token take on this host.
        shape: What the emulated machine is asked for.
        grammars: Its tokens as bytes.
    """

    name: str
    weights: Path
    module: nn.Module
    scores: Scores
    text: Text
    vocabulary: int
    context: int
    token_bytes: int
    shape: Decoder
    grammars: Grammars

    @property
    def window(self) -> int:
        """The keys that a row of the layer that reads the fewest reads; 0 if all read all."""
        config: Any = self.module.config
        windows = (config.window_of(layer) for layer in range(config.num_hidden_layers))
        return min((window for window in windows if window), default=0)

    @property
    def tokens(self) -> list[bytes]:
        """The bytes of each token."""
        return [self.grammars.bytes_of(token) for token in range(self.vocabulary)]

    @classmethod
    def of(cls, module: nn.Module, weights: Path, folder: Path, text: Text) -> ServedModel:
        """Return a decoder of the zoo as a model that answers.

        Raises:
            ConfigError: It is no decoder, or has fewer tokens than its text.
        """
        logits, config = getattr(module, "logits", None), getattr(module, "config", None)
        if logits is None or config is None:
            raise _no_answers(folder, type(module).__name__, "a decoder, with scores of tokens")
        if not _reads_by_windows(config):
            value = (
                f"{type(module).__name__} with memory tokens, patterns of keys or uniform experts"
            )
            raise _no_answers(folder, value, "attention by windows, experts by router or hash")
        if config.vocab_size < text.vocabulary:
            tokens = f"{config.vocab_size} tokens"
            raise _no_answers(folder, tokens, f"at least the {text.vocabulary} of its text")

        def scores(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = logits(tokens, position_ids=positions)
            return found

        width = config.num_heads * config.head_dim
        itemsize = next(module.parameters()).dtype.itemsize
        return cls(
            name=folder.resolve().name,
            weights=weights,
            module=module,
            scores=scores,
            text=text,
            vocabulary=config.vocab_size,
            context=config.max_position_embeddings,
            token_bytes=2 * itemsize * config.num_hidden_layers * width,
            shape=_shape_of(config),
            grammars=Grammars(text, config.vocab_size),
        )


@dataclass(frozen=True)
class HeldWeights:
    """The parameters of a decoder in this process."""

    module: nn.Module

    def load(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return parameters by name."""
        held = dict(self.module.named_parameters())
        return {name: held[name] for name in names}


def _reads_by_windows(config: Any) -> bool:
    """Return whether the place of a token decides nothing but its rotation and its window."""
    experts = config.experts
    return not (
        config.memory_tokens.places
        or any(config.patterns_of(layer) for layer in range(config.num_hidden_layers))
        or (experts is not None and experts.routing_algorithm == "uniform")
    )


def _shape_of(config: Any) -> Decoder:
    """Return what the emulated machine is asked for, from the configuration of a decoder."""
    experts = config.experts
    return Decoder(
        dim=config.hidden_size,
        ffn=config.filter_size,
        layers=config.num_hidden_layers,
        kv_dim=config.num_kv_heads * config.head_dim,
        query_dim=config.num_heads * config.head_dim,
        experts=1 if experts is None else experts.num_experts,
        experts_per_token=1 if experts is None else experts.top_k,
        shared_experts=0 if experts is None else experts.num_shared_experts,
        is_gated=config.is_gated,
        vocabulary=config.vocab_size,
    )


@dataclass(frozen=True)
class PlacedWeights:
    """The parameters of the decoder at a place, which may be read in another process.

    Attributes:
        place: As of ``load_model``.
        dtype: The name of that of the model.
        changed_ns: When its weights changed last, by which a wafer that is replaced knows them.
    """

    place: Path
    dtype: str
    changed_ns: int

    @classmethod
    def of(cls, place: Path, model: ServedModel) -> PlacedWeights:
        """Return the weights of a model that was loaded from a place."""
        found = place.absolute() if place.exists() else place
        dtype = next(model.module.parameters()).dtype
        return cls(found, NAMES[dtype], _changed_ns(model.weights))

    def load(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return parameters by name.

        Raises:
            CheckpointError: They have changed.
        """
        model = load_model(self.place, DTYPES[self.dtype])
        if _changed_ns(model.weights) != self.changed_ns:
            raise CheckpointError(
                "weights must stay as they are while they are served",
                code="served-weights-changed",
                where=str(model.weights),
                remedy="start the service again",
            )
        return HeldWeights(model.module).load(names)


def _changed_ns(path: Path) -> int:
    """Return when a file, or a folder or a file in it, changed last."""
    files = [path, *path.iterdir()] if path.is_dir() else [path]
    return max(each.stat().st_mtime_ns for each in files)


def decoder_of(place: Path) -> tuple[Decoder, int]:
    """Return the shape of a model, whose weights are not read, and its context.

    Raises:
        ConfigError: There is no model that answers.
    """
    with torch.device("meta"):
        config = _skeleton(place).config
    return _shape_of(config), config.max_position_embeddings


def load_model(place: Path, dtype: torch.dtype = torch.float32) -> ServedModel:
    """Load a model. Weights that have its dtype are mapped from their files, not copied.

    Args:
        place: The folder of a run, one of Hugging Face, a GGUF file, or the name of a model that a
            package holds (``PACKAGED``).
        dtype: Of weights and activations.

    Raises:
        ConfigError: There is no model that answers.
        CheckpointError: Its weights are damaged, or of another model.
    """
    if str(place) in PACKAGED and not place.exists():
        return _of_gguf(packaged_file(str(place)), str(place), dtype)
    if place.suffix == ".gguf":
        return _of_gguf(place, place.stem, dtype)
    if is_of_hugging_face(place):
        return _of_hugging_face(place, dtype)
    return _of_run(place, dtype)


def _of_run(folder: Path, dtype: torch.dtype) -> ServedModel:
    """Load the newest checkpoint of a folder into the model that was trained."""
    init = load_params(params_of(folder)).trainer.init
    checkpoint = CheckpointFolder(folder, init.checkpoint.checkpoint_name).newest()
    if checkpoint is None:
        raise nothing_to_serve(folder, "a checkpoint")
    module = make_model(init).eval().to(dtype)
    served = ServedModel.of(module, checkpoint, folder, ByteText())
    if served.vocabulary != ByteText.vocabulary:
        tokens = f"{served.vocabulary} tokens, of an unknown tokenizer"
        raise _no_answers(folder, tokens, "256 tokens, which are bytes")
    load_weights(module, checkpoint)
    return served


def _of_hugging_face(folder: Path, dtype: torch.dtype) -> ServedModel:
    """Load a folder that transformers has written."""
    module = _converted(folder, read_json(folder / "config.json"), read_hf(folder), dtype)
    return ServedModel.of(module, folder, folder, TokenizedText.of_folder(folder))


def _of_gguf(path: Path, name: str, dtype: torch.dtype) -> ServedModel:
    """Load a file of llama.cpp."""
    file = GgufFile(path)
    module = _converted(path, file.config(), file.weights(), dtype)
    return replace(ServedModel.of(module, path, path, file.text()), name=name)


def _converted(
    place: Path, config: Mapping[str, Any], theirs: Weights, dtype: torch.dtype
) -> nn.Module:
    """Return our model of a config.json with their weights."""
    section = _section(place, config)
    weights = CONVERSIONS[str(config["model_type"])].to_ours(theirs, section)
    with torch.device("meta"):
        module = build_model(section, seed=0)
    fill(module, {name: each.to(dtype) for name, each in weights.items()}, place, copies=False)
    return module.eval()


def _skeleton(place: Path) -> Any:
    """Return the model of a place before it has weights."""
    if str(place) in PACKAGED and not place.exists():
        return build_model(_section(place, GgufFile(packaged_file(str(place))).config()), seed=0)
    if place.suffix == ".gguf":
        return build_model(_section(place, GgufFile(place).config()), seed=0)
    if is_of_hugging_face(place):
        return build_model(_section(place, read_json(place / "config.json")), seed=0)
    return make_model(load_params(params_of(place)).trainer.init)


def _section(place: Path, config: Mapping[str, Any]) -> Any:
    """Return the model section of a config.json."""
    kind = str(config.get("model_type"))
    if kind not in CONVERSIONS:
        raise _no_answers(place, f"model_type {kind}", CONVERSIONS.rule)
    return CONVERSIONS[kind].section(config)


def _no_answers(folder: Path, value: str, rule: str) -> ConfigError:
    return ConfigError(
        "the model cannot answer text",
        code="model-without-answers",
        where=str(folder),
        value=value,
        rule=rule,
        remedy="serve a decoder that was trained on TextDataProcessor, or one of Hugging Face",
    )
