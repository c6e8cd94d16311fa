"""Build the captured program of a training row's model, for any micro-batch size.

A row names its model and states the differences from the model zoo's params file of that kind:
sizes and sequence length. The prediction uses the captured graph of exactly that model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import nn

from validation.rows.row import CannotPredict, Row
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS
from waferstream.compiler.derivation.scale import CAPTURED_SIZES, ScalableProgram
from waferstream.compiler.derivation.stacks import Stacks
from waferstream.config.params import TrainerConfig
from waferstream.config.phases import load_params
from waferstream.config.sections.lora import LoraConfig
from waferstream.core.program.program import Loading, Program, ProgramKind
from waferstream.numerics.precision import StreamPrecision
from waferstream.simulation.facts import training_loading
from waferstream.training.setup.model import add_lora
from waferstream.workload.models import training_example

_PARAMS = Path(__file__).parents[2] / "modelzoo" / "params"

_KINDS: Mapping[str, str] = {
    r"\bbert": "bert_large.yaml",
    r"\besm": "esm2_35m.yaml",
    r"\bdit\b": "dit_2b.yaml",
    "gpt-?j": "gptj_6b.yaml",
    "llama|mistral": "llama2_7b.yaml",
    "gpt(?!.?neo)|bloom|btlm|jais": "gpt3_1.3b.yaml",
}
"""Params file by a pattern of the row's workload; the first match counts."""

_ALIBI_SWIGLU = {"position_embedding_type": "alibi", "nonlinearity": "swiglu"}
_CHANGES: Mapping[str, dict[str, Any]] = {
    "bloom": {"name": "bloom", "position_embedding_type": "alibi", "embedding_layer_norm": True},
    "btlm": {"name": "btlm", **_ALIBI_SWIGLU},
    "jais": {"name": "jais", **_ALIBI_SWIGLU},
    "mistral": {"name": "mistral"},
    "gpt-2": {"dropout_rate": 0.1, "attention_dropout_rate": 0.1, "embedding_dropout_rate": 0.1},
}
"""What the public configuration of a kind changes in the model of its params file."""

_GROUPED_HEADS = re.compile("llama-?3|mistral")
_GROUPS = 8
"""Key and value heads of all sizes of Llama 3 (Grattafiori et al. 2024, table 3), of Mistral 7B."""

_COLUMNS: Mapping[str, str] = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_heads",
    "ffn": "filter_size",
    "vocab": "vocab_size",
}
"""Key of the model section by column of the row."""

_TOKENS = re.compile(
    r"(?:MSL )?(\d+|\d{1,3}(?:,\d{3})+)(?: tokens| \(MSL\))?"
    r"|not printed \((?P<likely>\d+) likely.*\)",
    re.IGNORECASE,
)
_PIXELS = re.compile(r"(\d+) ?px")
_PIXELS_PER_LATENT = 8
"""Pixels per latent on each side of an image (vendor's modelzoo, models/vision/dit/README.md)."""


def model_of(row: Row) -> dict[str, Any]:
    """Return the model section for a row; CannotPredict if its kind or its size is not known."""
    trainer = _trainer_of(row)
    section = trainer.init.model.dump() | _changes_of(row)
    stated = {key: row.integer(column) for column, key in _COLUMNS.items()}
    if not all(stated[key] for key in ("hidden_size", "num_hidden_layers", "num_heads")):
        raise CannotPredict("hidden size, layers or heads are not stated", code="shape-not-stated")
    if stated["filter_size"] is None and section["name"] != "llama":
        stated["filter_size"] = 4 * (stated["hidden_size"] or 0)
    section.update({key: value for key, value in stated.items() if value is not None})
    if _GROUPED_HEADS.search(row.text("workload").lower()):
        groups = {"num_kv_groups": _GROUPS}
        section.update(attention_module="multiquery_attention", extra_attention_params=groups)
    if "vae" in section:
        return section | {"vae": section["vae"] | {"latent_size": _latent_size(row, section)}}
    length = _tokens(row)
    longest = max(length, section["max_position_embeddings"])
    return section | {"max_position_embeddings": longest}


def loading_of(row: Row) -> Loading:
    """Return the input workers of a row, from the public configuration of that kind of model."""
    return training_loading(_trainer_of(row))


def micro_batch_of(row: Row) -> int | None:
    """Return the training micro-batch of a public configuration of exactly that model, or None."""
    trainer, stated = _trainer_of(row), model_of(row)
    of_file = trainer.init.model.dump()
    is_that_model = all(stated[key] == of_file[key] for key in ("hidden_size", "num_hidden_layers"))
    size = trainer.init.micro_batch_policy("train").requested
    return size if is_that_model and isinstance(size, int) else None


def _changes_of(row: Row) -> dict[str, Any]:
    workload = row.text("workload").lower()
    return next((_CHANGES[kind] for kind in _CHANGES if kind in workload), {})


def _trainer_of(row: Row) -> TrainerConfig:
    """Return the public configuration of a row's kind of model; CannotPredict if there is none."""
    workload = row.text("workload").lower()
    file = next((_KINDS[kind] for kind in _KINDS if re.search(kind, workload)), None)
    if file is None:
        raise CannotPredict(
            f"no model of {row.text('workload')!r} in the zoo", code="model-unknown"
        )
    return _trainer(file)


@cache
def _trainer(file: str) -> TrainerConfig:
    return load_params(_PARAMS / file).trainer


def sequence_length(row: Row) -> int | None:
    """Return the tokens per sample, None for images; CannotPredict if they are not stated."""
    return None if "vae" in _trainer_of(row).init.model.dump() else _tokens(row)


def _tokens(row: Row) -> int:
    """Parse the sequence length: a number, alone or as in ``MSL 2,048`` and ``2048 tokens``.

    Where a log does not print it, the length that the row calls likely counts.
    """
    text = row.text("seq_len")
    found = _TOKENS.fullmatch(text)
    if found is None:
        raise CannotPredict(
            f"the sequence length is not stated: {text!r}", code="sequence-length-not-stated"
        )
    return int((found["likely"] or found[1]).replace(",", ""))


def _latent_size(row: Row, section: Mapping[str, Any]) -> list[int]:
    """Return height and width of the latents of a square image, from its pixels or patches."""
    text = row.text("seq_len")
    if pixels := _PIXELS.search(text):
        return [int(pixels[1]) // _PIXELS_PER_LATENT] * 2
    leading = re.match(r"\d+", text)
    across = isqrt(int(leading[0])) if leading else 0
    if not leading or across**2 != int(leading[0]):
        raise CannotPredict(
            f"the size of the image is not stated: {text!r}", code="image-size-not-stated"
        )
    return [across * patch for patch in section["patch_size"]]


def program_of(row: Row, kind: ProgramKind, adapters: Sequence[LoraConfig] = ()) -> ScalableProgram:
    """Return the captured step of a row; with ``adapters`` they alone are trained."""
    section = json.dumps(model_of(row), sort_keys=True)
    return _captured(section, sequence_length(row), kind, tuple(adapters))


@cache
def _captured(
    section: str, length: int | None, kind: ProgramKind, adapters: Sequence[LoraConfig]
) -> ScalableProgram:
    """Capture a step, from a few layers if all layers are equal, as ``run.py --simulate`` does."""
    model: dict[str, Any] = json.loads(section)
    num_layers: int = model["num_hidden_layers"]

    def capture(layers: int, size: int) -> Program:
        return _program({**model, "num_hidden_layers": layers}, size, length, kind, adapters)

    if num_layers > CAPTURED_LAYERS + 1:
        small, large = (capture(CAPTURED_LAYERS, size) for size in CAPTURED_SIZES)
        one_more = capture(CAPTURED_LAYERS + 1, CAPTURED_SIZES[0])
        stacks = Stacks.checked(small, one_more, _shapes(model, adapters), CAPTURED_LAYERS)
        if stacks is not None:
            return ScalableProgram(stacks.deepened(small), stacks.deepened(large))
    return ScalableProgram(*(capture(num_layers, size) for size in CAPTURED_SIZES))


def _shapes(model: dict[str, Any], adapters: Sequence[LoraConfig]) -> dict[str, tuple[int, ...]]:
    whole = _adapted(training_example(model, 1).model, adapters)
    return {name: tuple(parameter.shape) for name, parameter in whole.named_parameters()}


def _adapted(model: nn.Module, adapters: Sequence[LoraConfig]) -> nn.Module:
    with torch.device("meta"):
        return add_lora(model, adapters, seed=0) if adapters else model


def _program(
    model: dict[str, Any],
    size: int,
    length: int | None,
    kind: ProgramKind,
    adapters: Sequence[LoraConfig],
) -> Program:
    example = training_example(model, size, length)
    _adapted(example.model, adapters)
    names = [name for name, _ in example.inputs]

    def forward(batch: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        with torch.no_grad():
            return [example.model(**dict(zip(names, batch, strict=True)))]

    step = example.step if kind.updates else forward
    request = CompileRequest(StreamPrecision("bfloat16", "bfloat16"), size, 1, "fidelity")
    return compile_step(step, example.model, example.inputs, request)[0].program
