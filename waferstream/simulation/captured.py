"""A captured training step, and the files that keep what was captured."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from memoryx.optim.cost import UpdateCost
from waferstream.compiler.derivation.scale import ScalableProgram
from waferstream.config.params import InitConfig
from waferstream.config.sections.callbacks import Lora, NotFiniteSteps
from waferstream.config.sections.flags import GlobalFlags, ScopedTrainFlags
from waferstream.core.program.program import Program
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.host.files import remove_oldest, replacing
from waferstream.host.user_state import STATE_FOLDER, state_folder

Kept = TypeVar("Kept")

MOST_KEPT = 64
"""Files of captured steps in a folder, of some hundred KiB each."""

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class CapturedStep:
    """A training step at two micro-batch sizes, and the cost of the update that follows it."""

    small: Program
    large: Program
    update: UpdateCost
    waits_for_all: bool
    tokens_per_sample: int | None
    """None for a model that does not read tokens."""
    sparse: tuple[WeightSparsity, ...] = ()
    """The weights that have masks."""
    model_class: str = ""
    """Name of the class of the model."""
    one_group: Program | None = None
    """The step of the smallest micro-batch, where it was asked for."""

    @cached_property
    def program(self) -> ScalableProgram:
        """The step at any micro-batch size."""
        return ScalableProgram.of(self.small, self.large)


_STEP = TypeAdapter(CapturedStep)


def deciding_sections(init: InitConfig) -> tuple[object, ...]:
    """Return the sections of a configuration that decide its captured step, for digests."""
    flags = (init.callback(GlobalFlags), init.callback(ScopedTrainFlags))
    return (
        *(init.model.dump(), init.precision.dump(), init.optimizer, init.sparsity),
        *(init.callback(Lora), init.callback(NotFiniteSteps)),
        *(None if each is None else each.values() for each in flags),
    )


def store_captured(step: CapturedStep, path: Path | None) -> None:
    """Write a step to its file in the cache, if it has one."""
    store(_STEP, step, path)


def load_captured(path: Path | None) -> CapturedStep | None:
    """Load a cached step; return None if there is none, or, with a warning, if it is damaged."""
    return load(_STEP, path)


def parsed(content: bytes) -> CapturedStep:
    """Return the step of a file's content; ValueError if it is damaged."""
    return _STEP.validate_json(content)


def store(kind: TypeAdapter[Any], step: object, path: Path | None) -> None:
    """Write what was captured to its file in the cache, if it has one and can be written."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_bytes(kind.dump_json(step))
    except OSError as error:  # a read-only home, a full disk
        log.warning("The captured step is not kept for later (%s): %s", STATE_FOLDER, error)
        return
    prefix, _, _ = path.name.rpartition("_")
    remove_oldest(path.parent, f"{prefix}_*.json", MOST_KEPT)


def captures_folder() -> Path:
    """Return the folder of captured steps, unless a configuration names one (``compile_dir``).

    It is not the working folder: what only predicts leaves no file there.
    """
    return state_folder() / "captures"


def load(kind: TypeAdapter[Kept], path: Path | None) -> Kept | None:
    """Return what a file keeps; None if there is none, or, with a warning, if it is damaged."""
    if path is None or not path.exists():
        return None
    try:
        return kind.validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        log.warning("Ignoring the damaged file %s: %s", path, str(error).split("\n")[0])
        return None
