"""Read params.yaml in either layout, apply the command line, and validate its phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from waferstream.config.legacy import convert_legacy, is_legacy
from waferstream.config.overrides import Override, apply_overrides
from waferstream.config.params import Mode, Params
from waferstream.core.config import load_yaml, validate
from waferstream.core.errors import ConfigError
from waferstream.core.plugins import Plugins
from waferstream.workload.known_keys import check_keys

_MODEL = "trainer.init.model"


def load_params(path: Path, overrides: Sequence[Override] = ()) -> Params:
    """Load the configuration of a run of one phase; arguments and errors as of ``load_phases``."""
    return only_phase(load_phases(path, overrides), path)


def only_phase(phases: Sequence[Params], path: Path) -> Params:
    """Return the phase of a file that must have one; ConfigError if it has several."""
    if len(phases) != 1:
        raise ConfigError(
            "the file must have one phase here",
            code="several-phases",
            where=str(path),
            value=f"'trainer' is a list of {len(phases)}",
            remedy="write the phase that is meant to a file of its own",
        )
    return phases[0]


def load_phases(path: Path, overrides: Sequence[Override] = ()) -> tuple[Params, ...]:
    """Load the configurations of the phases of a run, in their order.

    Args:
        path: File in the Trainer layout, of one phase or of a list, or in the legacy layout.
        overrides: Values of the command line. They apply to every phase, but for the checkpoint
            that training starts from: it is that of the first phase.

    Raises:
        ConfigError: a key or value of the file or of the command line is wrong, or the phases use
            different backends.
    """
    # Validate the file before typed values are applied, so that an error names its origin.
    data, where = load_yaml(path), str(path)
    if is_legacy(data):
        where = f"{path} (legacy layout, read as Trainer layout)"
        data = convert_legacy(data, str(path))
    sections = _split_phases(data, where)
    later = [override for override in overrides if override.path != ("fit", "ckpt_path")]
    phases = tuple(
        _resolved(
            section,
            f"{where}, phase {number}" if len(sections) > 1 else where,
            overrides if number == 1 else later,
        )
        for number, section in enumerate(sections, start=1)
    )
    _check_same_backend(phases, where)
    return phases if len(phases) == 1 else tuple(map(_allowing_changes, phases))


def _resolved(data: dict[str, Any], where: str, overrides: Sequence[Override]) -> Params:
    params = validate(Params, data, where)
    if not overrides:
        return params
    flags = ", ".join(sorted({override.flag for override in overrides}))
    typed = {"trainer": apply_overrides(params.dump()["trainer"], overrides)}
    return validate(Params, typed, f"command line, one of {flags}")


def _allowing_changes(params: Params) -> Params:
    """Return a phase that may differ from the one before, whose checkpoints it goes on from."""
    trainer = params.trainer
    checkpoint = trainer.init.checkpoint.model_copy(update={"allow_changes": True})
    init = trainer.init.model_copy(update={"checkpoint": checkpoint})
    return params.model_copy(update={"trainer": trainer.model_copy(update={"init": init})})


def _split_phases(data: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the phases of ``trainer: [{trainer: ...}, ...]``, or the file as the only one."""
    phases = data.get("trainer")
    if not isinstance(phases, list):
        return [data]
    if not phases or not all(
        isinstance(each, dict) and list(each) == ["trainer"] for each in phases
    ):
        raise ConfigError(
            "a list of phases must have items with the key 'trainer' only",
            code="phase-without-trainer",
            where=where,
            value=f"a list of {len(phases)}",
            rule="trainer: [{trainer: ...}, {trainer: ...}]",
        )
    rest = {key: value for key, value in data.items() if key != "trainer"}
    return [{**rest, **phase} for phase in phases]


def _check_same_backend(phases: Sequence[Params], where: str) -> None:
    """Refuse phases whose backends differ in more than ``cluster_config``."""
    first, *others = (
        phase.trainer.init.backend.model_dump(exclude={"cluster_config"}) for phase in phases
    )
    for number, other in enumerate(others, start=2):
        for key in {**first, **other}:
            if other.get(key) == first.get(key):
                continue
            raise ConfigError(
                "phases may differ in backend.cluster_config only, of all keys of backend",
                code="phases-differ",
                where=f"{where}, phase {number}, trainer.init.backend.{key}",
                value=f"{other.get(key)}; {first.get(key)} in phase 1",
                remedy="give all phases the same value, or run them from files of their own",
            )


def check_phases(phases: Sequence[Params], mode: Mode) -> None:
    """Refuse a phase that would silently start from scratch, as the one before it saves nothing.

    Raises:
        ConfigError: A training phase continues from the newest checkpoint of a model folder in
            which the phase before it writes none.
    """
    if mode not in ("train", "train_and_eval"):
        return
    for number, (before, after) in enumerate(pairwise(phases), start=2):
        init, fit = after.trainer.init, after.trainer.fit
        continues = (
            fit is not None
            and fit.ckpt_path == "newest"
            and init.checkpoint.autoload_last_checkpoint
            and init.model_dir == before.trainer.init.model_dir
        )
        if continues and not before.trainer.init.checkpoint.steps:
            raise ConfigError(
                "a phase must write a checkpoint for the next one to continue from",
                code="phase-without-checkpoint",
                where=f"phase {number - 1}, trainer.init.checkpoint.steps",
                value=before.trainer.init.checkpoint.steps or "not set",
                rule=f"phase {number} continues from the newest checkpoint in {init.model_dir}",
                remedy="set checkpoint.steps, or give the next phase ckpt_path: null",
            )


def check_sections(params: Params) -> None:
    """Check name, keys and heads of the model, and the keys of data loaders.

    Raises:
        ConfigError: One of them is wrong.
    """
    model = params.trainer.init.model.dump()
    _check_name(model)
    check_keys(model, model.get("name"), _MODEL)
    _check_heads(model)
    for where, loader in params.trainer.dataloaders():
        section = loader.dump()
        check_keys(section, section.get("data_processor"), where)


def _check_name(model: Mapping[str, Any]) -> None:
    name, known = model.get("name"), Plugins[Any]("models")
    if isinstance(name, str) and model.get("class") is None and name not in known:
        raise ConfigError(
            "name must be that of a model",
            code="unknown-model",
            where=_MODEL,
            value=name,
            rule=known.rule,
            remedy=known.remedy(name),
        )


def _check_heads(model: Mapping[str, Any]) -> None:
    """Refuse heads that do not divide the width that a model is declared with."""
    match model:
        case {"name": "gpt2" | "gpt3" | "llama" | "bert", "hidden_size": int(width)} if (
            "attention_inner_dim" not in model
        ):
            heads = model.get("num_heads")
            if isinstance(heads, int) and heads > 0 and width % heads:
                raise ConfigError(
                    "value of 'num_heads' is not allowed",
                    code="not-allowed",
                    where=_MODEL,
                    value=heads,
                    rule=f"num_heads must divide hidden_size, which is {width}",
                    remedy=f"one of {', '.join(map(str, _divisors(width)))}",
                )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, min(number, 256) + 1) if number % each == 0]
