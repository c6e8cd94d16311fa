"""The folder of checkpoints: each appears whole or not at all, and the last one is never lost.

A checkpoint is written as ``.<name>.partial``, flushed, and renamed; a crash at any moment leaves
the checkpoints before it as they were. ``checkpoints_index.yaml`` lists them in the order in which
they were saved (cluster_interface.md, sections 2.2 and 4.6). The files are the truth: a listed file
that is gone is skipped, a file that is not listed is found by its name.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from pydantic import AwareDatetime, NonNegativeInt

from memoryx.checkpoint import Reader, cannot_write
from wsc.core.config import Config, load_yaml, validate
from wsc.core.errors import CheckpointError, ConfigError

INDEX_NAME = "checkpoints_index.yaml"
LOCK_NAME = f"{INDEX_NAME}.lock"
DEFAULT_PATTERN = "checkpoint_{step}.mdl"
_PARTIAL = ".{name}.partial"

log = logging.getLogger("waferstream")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; leaving the block makes it ``path``, in its place if any.

    If the block fails, or the disk is full (CheckpointError), nothing of the new file is left. What
    a process leaves that is killed meanwhile, ``prepare`` removes.
    """
    partial = path.with_name(_PARTIAL.format(name=path.name))
    with _writing(path):
        try:
            partial.unlink(missing_ok=True)
            yield partial
            _flush(partial)
            partial.rename(path)
            _flush(path.parent)
        finally:
            partial.unlink(missing_ok=True)


class Entry(Config):
    """One known checkpoint: its step, its file in the folder, and when it was saved (UTC)."""

    step: NonNegativeInt
    file: str
    time: AwareDatetime


class _Index(Config):
    checkpoints: tuple[Entry, ...]


@dataclass(frozen=True)
class Draft:
    """A checkpoint that is being written to ``partial``; it will be ``final``."""

    partial: Path
    final: Path


class CheckpointFolder:
    """The checkpoints of one ``model_dir``.

    ``pattern`` names the files and holds ``{step}``; ``keep`` is how many of the newest to keep
    (None: all). Only files that this folder's index lists are ever removed.
    """

    def __init__(
        self, model_dir: Path, pattern: str = DEFAULT_PATTERN, keep: int | None = None
    ) -> None:
        if pattern.count("{step}") != 1 or Path(pattern).name != pattern:
            raise ConfigError(
                "the checkpoint name does not work",
                where="checkpoint_name",
                value=pattern,
                rule="a file name that holds {step} once",
            )
        if keep is not None and keep < 1:
            raise ConfigError(
                "at least one checkpoint must be kept", where="KeepNCheckpoints.n", value=keep
            )
        self.path = model_dir
        self._pattern = pattern
        self._keep = keep

    def prepare(self) -> None:
        """Make the folder, and remove what a writer that died has left in it."""
        with _writing(self.path), self._lock(wait=False) as is_locked:
            if is_locked:  # otherwise someone is writing right now
                for partial in self.path.glob(_PARTIAL.format(name="*")):
                    log.warning("Removing unfinished checkpoint %s", partial)
                    partial.unlink()

    @contextmanager
    def draft(self, step: int) -> Iterator[Draft]:
        """Write a checkpoint: the caller fills ``partial``, leaving the block makes it ``final``.

        If the block fails, or the disk is full (CheckpointError), nothing of it is left and the
        checkpoints before it are untouched. Waits while another process writes.
        """
        with _writing(self.path), self._lock():
            now = datetime.now(UTC)
            final = self._name(step, now)
            with whole(final) as partial:
                yield Draft(partial, final)
            self._index(Entry(step=step, file=final.name, time=now))

    def entries(self) -> list[Entry]:
        """Known checkpoints whose files exist, oldest first."""
        listed = {entry.file: entry for entry in self._listed()}
        for file in self.path.glob("*"):
            if file.name not in listed and (step := self._step_of(file.name)) is not None:
                saved = datetime.fromtimestamp(file.stat().st_mtime, UTC)
                listed[file.name] = Entry(step=step, file=file.name, time=saved)
        return sorted(listed.values(), key=lambda entry: (entry.time, entry.step))

    def newest(self) -> Path | None:
        """The checkpoint saved last that can be read; damaged ones are skipped with a warning."""
        for entry in reversed(self.entries()):
            path = self.path / entry.file
            try:
                Reader(path)
            except CheckpointError as error:
                log.warning("Skipping checkpoint %s: %s", path, error)
            else:
                return path
        return None

    def _name(self, step: int, now: datetime) -> Path:
        """A name that no file has: the plain one, or one with the time appended."""
        plain = self.path / self._pattern.replace("{step}", str(step))
        final = plain
        while final.exists():
            final = plain.with_stem(f"{plain.stem}_{now:%Y%m%d_%H%M%S}")
            now += timedelta(seconds=1)
        return final

    def _step_of(self, name: str) -> int | None:
        """The step in a file name of this pattern, or None for another file."""
        plain = Path(self._pattern)
        stem, suffix = (
            re.escape(part).replace(re.escape("{step}"), r"(?P<step>\d+)")
            for part in (plain.stem, plain.suffix)
        )
        match = re.fullmatch(rf"{stem}(_\d{{8}}_\d{{6}})?{suffix}", name)
        return int(match["step"]) if match else None

    def _listed(self) -> list[Entry]:
        """Entries of the index whose files exist; none if the index is missing or broken."""
        path = self.path / INDEX_NAME
        if not path.exists():
            return []
        try:
            index = validate(_Index, load_yaml(path), str(path))
        except ConfigError as error:
            log.warning("Ignoring the checkpoint index: %s", error)
            return []
        return [entry for entry in index.checkpoints if (self.path / entry.file).exists()]

    def _index(self, new: Entry) -> None:
        """Add an entry to the index, and drop the oldest files beyond ``keep``."""
        entries = [*self._listed(), new]
        kept = entries[-self._keep :] if self._keep is not None else entries
        for entry in entries[: len(entries) - len(kept)]:
            (self.path / entry.file).unlink(missing_ok=True)
        data = _Index(checkpoints=tuple(kept)).model_dump(mode="json")
        with whole(self.path / INDEX_NAME) as partial:
            partial.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")

    @contextmanager
    def _lock(self, wait: bool = True) -> Iterator[bool]:
        """Be the only writer; the lock ends with the process. Yields whether it was obtained."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK_NAME).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # children forked meanwhile hold the file too


def _flush(path: Path) -> None:
    """Make a file's bytes, or a folder's names, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error
