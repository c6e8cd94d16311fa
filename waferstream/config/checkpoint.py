"""``trainer.init.checkpoint`` and the paths that name a checkpoint to start from."""

from __future__ import annotations

from pathlib import Path
from string import Formatter
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from waferstream.config.section import NotYet, Section, StepInterval, not_supported


def _check_name(name: str) -> str:
    try:
        fields = [field for _, field, _, _ in Formatter().parse(name) if field is not None]
    except ValueError:
        fields = []
    if fields != ["step"] or Path(name).name != name:
        raise ValueError("a file name with {step} in it once, and no other field or folder")
    return name


def _refuse_url(path: object) -> object:
    if "://" in str(path):
        raise not_supported("give a local file")
    return path


CheckpointPath = Annotated[Path, BeforeValidator(_refuse_url)]

StartFrom = CheckpointPath | Literal["newest"] | None
"""A checkpoint to start from: a file, the newest in ``model_dir``, or (null) none at all."""


class CheckpointConfig(Section):
    """When checkpoints are written and how they are read (cluster_interface.md, section 2.2)."""

    steps: StepInterval | None = None
    """Write every so many steps and after the last one; None and 0 mean never."""
    autoload_last_checkpoint: bool = True
    """Start from the newest checkpoint in ``model_dir`` when none is named."""
    disable_strict_checkpoint_loading: bool = False
    """Allow weights that are missing or not expected."""
    save_initial_checkpoint: bool = False
    """Write the initial weights before the first step of a run that starts from none."""
    checkpoint_name: Annotated[str, AfterValidator(_check_name)] = "checkpoint_{step}.mdl"
    checkpoint_root: NotYet = None
    strict_version: bool = True
    """Refuse a checkpoint of another major or minor version."""
