"""The folder of checkpoints of a run, written atomically.

A checkpoint is written as ``.<name>.<process>.partial``, flushed, and renamed; a crash at any
moment leaves the earlier checkpoints as they were. ``checkpoints_index.yaml`` lists them in the
order in which they were saved (Model Zoo 2.10, ``trainer/callbacks/checkpoint.py``). The files have
precedence over the index: a listed file that is missing is skipped, an unlisted file is found by
its name. Checkpoints are numbered in the order of saving, in the index and in the files: clocks go
back, and copies change the times of files. An index may come from anybody, so only files of this
folder are read, and only those that are called like checkpoints are removed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml
from pydantic import AwareDatetime, NonNegativeInt

from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import writing
from waferstream.core.config import Config, load_yaml, validate
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.host.files import PARTIAL_NAME, replacing
from waferstream.host.locks import locked

INDEX_NAME = "checkpoints_index.yaml"
LOCK_NAME = f"{INDEX_NAME}.lock"
DEFAULT_PATTERN = "checkpoint_{step}.mdl"
NUMBER = "number_in_folder"
"""The state of a checkpoint that has its number."""

_MOST_NUMBER = 2**53  # of JSON
_MOST_NAME_BYTES = 255  # of a file, on Linux
_NUM_SHOWN = 5  # names in a warning

log = logging.getLogger("waferstream")


class Entry(Config):
    """One known checkpoint: its step, its file in the folder, and its time of saving (UTC)."""

    step: NonNegativeInt
    file: str
    time: AwareDatetime
    number: NonNegativeInt = 0
    """Place in the order of saving, from 1 on; 0 is unknown, in folders of earlier versions."""
    is_finite: bool = True
    """Whether weights and optimizer state are numbers; no run continues from others by itself."""


class _Index(Config):
    checkpoints: tuple[Entry, ...]


@dataclass(frozen=True)
class Draft:
    """A checkpoint while it is written: its path now, its path once it is complete, its number."""

    partial: Path
    final: Path
    number: int


class CheckpointFolder:
    """The checkpoints of one ``model_dir``.

    ``pattern`` is the file name, with ``{step}`` in it; ``keep`` is the number of newest
    checkpoints to keep (None: all). Only files that this folder's index lists are removed.
    """

    def __init__(
        self, model_dir: Path, pattern: str = DEFAULT_PATTERN, keep: int | None = None
    ) -> None:
        if pattern.count("{step}") != 1 or Path(pattern).name != pattern:
            raise ConfigError(
                "checkpoint_name must be a file name that contains {step} once",
                code="checkpoint-name",
                where="checkpoint_name",
                value=pattern,
            )
        if keep is not None and keep < 1:
            raise ConfigError(
                "KeepNCheckpoints.n must be at least 1",
                code="keep-too-few",
                where="KeepNCheckpoints.n",
                value=keep,
            )
        self.path = model_dir
        self._pattern = pattern
        self._keep = keep

    def prepare(self) -> None:
        """Make the folder, and remove incomplete files that a killed process left."""
        with writing(self.path), self._lock(wait=False) as is_locked:
            if is_locked:  # otherwise another process is writing now
                for partial in self.path.glob(f"{PARTIAL_NAME.format(name='*', process='*')}*"):
                    log.warning("Removing incomplete file %s", partial)
                    partial.unlink()

    @contextmanager
    def draft(self, step: int) -> Iterator[Draft]:
        """Yield a draft to write to; when the block ends well it becomes a checkpoint.

        If the block fails, nothing of it is left and the earlier checkpoints are unchanged. Waits
        while another process writes.

        Raises:
            CheckpointError: The file cannot be written, for example because the disk is full.
        """
        with writing(self.path), self._lock():
            now = datetime.now(UTC)
            final, number = self._name(step, now), self.last_number() + 1
            with replacing(final, durable=True) as partial:
                yield Draft(partial, final, number)
            self._index(
                Entry(
                    step=step,
                    file=final.name,
                    time=now,
                    number=number,
                    is_finite=not Reader(final).not_finite,
                )
            )

    def entries(self) -> list[Entry]:
        """Return the checkpoints whose files exist, in the order in which they were saved.

        A file that is not listed comes after the last listed one that was saved before it.
        """
        listed = self._listed()
        ranked = [((place, False, 0, 0, each.time), each) for place, each in enumerate(listed)]
        for each in self._unlisted({entry.file for entry in listed}):
            earlier = (n for n, other in enumerate(listed) if self._precedes(other, each))
            place = max(earlier, default=-1)
            ranked.append(((place, True, each.number, each.step, each.time), each))
        return [entry for _, entry in sorted(ranked, key=itemgetter(0))]

    def last_number(self) -> int:
        """Return the number of the checkpoint that was saved last, 0 if there is none."""
        return max((entry.number for entry in self.entries()), default=0)

    def newest(
        self, after: int | None = None, among: Callable[[Mapping[str, Any]], bool] | None = None
    ) -> Path | None:
        """Return the newest good checkpoint; skip damaged and NaN ones with a warning.

        Every byte of it is checked, so that a run does not start from it and fail later.

        Args:
            after: Leave out those up to this number.
            among: Says by its states, without tensors, whether a checkpoint is looked at.
        """
        for entry in reversed(self.entries()):
            if after is not None and entry.number <= after:
                continue
            path = self.path / entry.file
            try:
                reader = Reader(path)
                if among is not None and not among(reader.objects):
                    continue
                reader.verify()
            except CheckpointError as error:
                log.warning("Skipping checkpoint %s: %s", path, error)
                continue
            if not reader.not_finite:
                return path
            names = ", ".join(reader.not_finite[:_NUM_SHOWN])
            log.warning("Skipping checkpoint %s: NaN or infinity in %s", path, names)
        return None

    def remove(self, among: Callable[[Mapping[str, Any]], bool]) -> None:
        """Remove checkpoints of which a function says so by their states; damaged ones stay."""
        for entry in self.entries():
            path = self.path / entry.file
            with suppress(CheckpointError):
                if among(Reader(path).objects):
                    path.unlink()

    def _name(self, step: int, now: datetime) -> Path:
        """Return a path that does not exist: the plain one, or one with the time appended."""
        plain = self.path / self._pattern.replace("{step}", str(step))
        final = plain
        while final.exists():
            final = plain.with_stem(f"{plain.stem}_{now:%Y%m%d_%H%M%S}")
            now += timedelta(seconds=1)
        return final

    def _step_of(self, name: str) -> int | None:
        """Return the step in a file name of this pattern, or None for another file."""
        plain = Path(self._pattern)
        stem, suffix = (
            re.escape(part).replace(re.escape("{step}"), r"(?P<step>\d+)")
            for part in (plain.stem, plain.suffix)
        )
        match = re.fullmatch(rf"{stem}(_\d{{8}}_\d{{6}})?{suffix}", name)
        return int(match["step"]) if match else None

    def _listed(self) -> list[Entry]:
        """Return index entries whose files exist; none if the index is missing or damaged."""
        path = self.path / INDEX_NAME
        if not path.is_file():
            return []
        try:
            index = validate(_Index, load_yaml(path), str(path))
        except ConfigError as error:
            log.warning("Ignoring the checkpoint index: %s", error)
            return []
        own = [entry for entry in index.checkpoints if _is_plain(entry.file)]
        if foreign := [entry.file for entry in index.checkpoints if entry not in own]:
            names = ", ".join(f"{name[:_MOST_NAME_BYTES]!r}" for name in foreign[:_NUM_SHOWN])
            log.warning("Ignoring entries of %s outside of its folder: %s", path, names)
        return [entry for entry in own if (self.path / entry.file).is_file()]

    def _unlisted(self, listed: Collection[str]) -> Iterator[Entry]:
        """Yield the checkpoints of this folder that are called like ours and are not listed."""
        for file in self.path.glob("*"):
            step = self._step_of(file.name)
            if step is not None and file.name not in listed and file.is_file():
                number = _number_in(file)
                yield Entry(step=step, file=file.name, time=_saved(file), number=number)

    def _precedes(self, listed: Entry, other: Entry) -> bool:
        """Return whether a listed file was saved before another one that is not listed.

        A file of another program or of an earlier version has no number: step and time decide.
        """
        if other.number:
            return listed.number < other.number
        return listed.step < other.step and _saved(self.path / listed.file) <= other.time

    def _index(self, new: Entry) -> None:
        """Add an entry to the index, and remove the oldest files beyond ``keep``."""
        entries = [*self._listed(), new]
        kept = entries
        if self._keep is not None:  # one that no run can continue from must not push out others
            good = [entry for entry in entries if entry.is_finite][-self._keep :]
            kept = [entry for entry in entries if entry in good or entry is new]
        data = _Index(checkpoints=tuple(kept)).model_dump(mode="json", exclude_defaults=True)
        with replacing(self.path / INDEX_NAME, durable=True) as partial:
            partial.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        for entry in entries:
            if entry not in kept and self._step_of(entry.file) == entry.step:
                (self.path / entry.file).unlink(missing_ok=True)

    @contextmanager
    def _lock(self, wait: bool = True) -> Iterator[bool]:
        """Lock the folder for writing; yield whether the lock was obtained.

        Raises:
            CheckpointError: Another process has held the lock for too long.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.path / LOCK_NAME, None if wait else 0))
            except TimeoutError as error:
                if not wait:
                    yield False
                    return
                raise CheckpointError(
                    "another process keeps the checkpoints locked",
                    code="checkpoints-locked",
                    where=error.filename,
                    value=error.strerror,
                    remedy="end that process, or wait for it; the same command goes on",
                ) from error
            yield True


def _saved(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _number_in(path: Path) -> int:
    """Return the number that a checkpoint states; 0 without one, as in a damaged file."""
    try:
        number = Reader(path).objects.get(NUMBER)
    except CheckpointError:
        return 0
    return number if isinstance(number, int) and 0 < number < _MOST_NUMBER else 0


def _is_plain(name: str) -> bool:
    """Return whether a name of an index can only be that of a file in its folder."""
    is_name = Path(name).name == name != ".." and "\0" not in name
    return is_name and len(name.encode()) <= _MOST_NAME_BYTES
