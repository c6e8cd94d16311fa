"""Checkpoints of other programs, whose weights a run may start from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waferstream.checkpoint import MODEL
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.host.files import replacing
from waferstream.workload import user_classes
from waferstream.workload.published_weights import of_our_names, publisher
from waferstream.workload.weight_files import read_weights
from waferstream.workload.weight_kinds import Kind, check_kind, kind_of

log = logging.getLogger("waferstream")


def own_checkpoint(path: Path, section: Mapping[str, Any], folder: Path) -> Path:
    """Return a checkpoint of ours with the weights of one: itself, or a copy in a folder.

    Files of the vendor's package or with its names become a copy, without their other states.

    Args:
        path: The checkpoint.
        section: The model that is to have the weights.
        folder: Where the copy is written.

    Raises:
        CheckpointError: The path holds something else, or weights of another model.
    """
    kind = kind_of(path)
    check_kind(path, kind)
    if kind is Kind.OTHER or (kind is Kind.OURS and not _has_other_names(path, section)):
        return path
    weights = of_our_names(read_weights(path), section)
    target = folder / f"{path.stem}_to_cs.mdl"
    with replacing(target, durable=True) as partial:
        append_tensors(
            partial, MODEL, {name: each.float().numpy() for name, each in weights.items()}
        )
        write_metadata(partial, {"global_step": 0})
    log.info("Converted the weights of %s to %s; its other states are left out", path, target)
    return target


def _has_other_names(path: Path, section: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint of ours has the names of another zoo."""
    if user_classes.CLASS in section:
        return False
    return publisher(Reader(path).names(MODEL), section) is not None
