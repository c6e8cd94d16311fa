"""Captured steps of configurations that were simulated before, found without importing torch.

A note beside the captured steps says which of them belongs to a configuration, and the facts of its
model and data. Its name is a digest of all that they follow from: the project's own code, the
releases of Python and PyTorch, the sections of model, optimizer and data, and size and times of
each file that the data section names. Only models, data processors and optimizers of this project
have notes: other code may read anything. A note is sealed by its user: nobody else's counts.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from waferstream.config.params import Params
from waferstream.host.files import remove_oldest, replacing
from waferstream.host.sources import OWN_PACKAGES, sources_digest
from waferstream.host.user_state import is_sealed, sealed
from waferstream.simulation.captured import (
    MOST_KEPT,
    CapturedStep,
    captures_folder,
    deciding_sections,
    parsed,
)
from waferstream.simulation.facts import Facts
from waferstream.version import VERSION

_MOST_FILES = 10_000
"""Of the data: reading the times of more would take longer than torch."""

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class Note:
    """The captured step and the facts of a configuration."""

    step: str
    """Name of its file."""
    sha256: str
    """Of that file."""
    facts: Facts


_NOTE = TypeAdapter(Note)


def find_known(params: Params) -> tuple[CapturedStep, Facts] | None:
    """Return step and facts of a configuration that was captured before, or None."""
    path = _note_file(params)
    if path is None:
        return None
    with suppress(OSError, ValueError):  # there is none, or it is damaged
        seal, _, content = path.read_bytes().partition(b"\n")
        if not is_sealed(path.name.encode() + content, seal.decode()):
            return None
        note = _NOTE.validate_json(content)
        step = path.with_name(note.step)
        data = step.read_bytes()
        if hashlib.sha256(data).hexdigest() == note.sha256:
            log.info("Captured step loaded from %s", step)
            return parsed(data), note.facts
    return None


def remember(params: Params, step: Path, facts: Facts) -> None:
    """Note the captured step in a file, and the facts, of a configuration of the zoo's."""
    path = _note_file(params)
    if path is None:
        return
    with suppress(OSError):  # the disk is full: the next simulation takes longer
        digest = hashlib.sha256(step.read_bytes()).hexdigest()
        content = _NOTE.dump_json(Note(step.name, digest, facts))
        with replacing(path) as written:
            written.write_bytes(sealed(path.name.encode() + content).encode() + b"\n" + content)
        remove_oldest(path.parent, "known_*.json", MOST_KEPT)


def _note_file(params: Params) -> Path | None:
    """Return the file of a configuration's note; None if it can have none."""
    init, fit = params.trainer.init, params.trainer.fit
    if fit is None or fit.train_dataloader.class_path is not None or init.model.name is None:
        return None
    loader = fit.train_dataloader.dump()
    files = list(islice(_files_of(loader), _MOST_FILES + 1))
    if len(files) > _MOST_FILES:
        return None
    parts = (VERSION, sys.version, _torch(), deciding_sections(init), loader, files)
    workers = init.backend.cluster_config.num_workers_per_csx
    content = repr((parts, workers, sources_digest(*OWN_PACKAGES)))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    with suppress(OSError):  # a user without a state folder
        return (init.backend.compile_dir or captures_folder()) / f"known_{digest}.json"
    return None


def _torch() -> str | None:
    with suppress(PackageNotFoundError):
        return version("torch")
    return None


def _files_of(section: object) -> Iterator[tuple[str, int, int, int]]:
    """Yield path, size and times of each file that a section of the configuration names.

    Names are those of ``find_files`` and of vocabularies: files, folders, globs, with variables.
    """
    if isinstance(section, Mapping):
        for value in section.values():
            yield from _files_of(value)
    elif isinstance(section, str | Path):
        name = os.path.expanduser(os.path.expandvars(section))
        for path in (name,) if os.path.exists(name) else glob.iglob(name, recursive=True):
            yield from _files_below(Path(path))
    elif isinstance(section, Sequence):
        for value in section:
            yield from _files_of(value)


def _files_below(path: Path) -> Iterator[tuple[str, int, int, int]]:
    """Yield a file or folder, and all below it: one that took its place has another ctime."""
    try:
        status = path.stat()
        names = sorted(os.listdir(path)) if path.is_dir() else []
    except (OSError, ValueError):  # it is gone, not ours to read, or a word that is no path
        return
    yield str(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ctime_ns
    for name in names:
        yield from _files_below(path / name)
