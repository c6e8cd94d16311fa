"""Read params.yaml: either layout, then the command line, then one validated ``Params``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from waferstream.config.legacy import convert_legacy, is_legacy
from waferstream.config.overrides import Override, apply_overrides
from waferstream.config.params import Params
from wsc.core.config import load_yaml, validate
from wsc.core.errors import ConfigError


def load_params(path: Path, overrides: Sequence[Override] = ()) -> Params:
    """The configuration of a run.

    The file is validated on its own before typed values are laid over it, so that an error
    names the one or the other. Raises ConfigError.
    """
    data, where = load_yaml(path), str(path)
    if is_legacy(data):
        where = f"{path} (legacy layout, read as Trainer layout)"
        data = convert_legacy(data, str(path))
    params = validate(Params, _one_phase(data, where), where)
    if not overrides:
        return params
    flags = ", ".join(sorted({override.flag for override in overrides}))
    typed = {"trainer": apply_overrides(params.dump()["trainer"], overrides)}
    return validate(Params, typed, f"command line, one of {flags}")


def _one_phase(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Unwrap ``trainer: [{trainer: ...}]``; several phases are refused."""
    phases = data.get("trainer")
    if not isinstance(phases, list):
        return data
    if len(phases) != 1 or not isinstance(phases[0], dict) or list(phases[0]) != ["trainer"]:
        raise ConfigError(
            "runs of several phases are not supported yet",
            where=where,
            value=f"'trainer' is a list of {len(phases)}",
            rule="one mapping, or a list with one 'trainer' item",
            remedy="run the phases one after another, each from its own file",
        )
    return {**data, "trainer": phases[0]["trainer"]}
