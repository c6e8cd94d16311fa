"""A run whose folder is in an object store."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from waferstream.config.params import Mode
from waferstream.core.stores import store_of

log = logging.getLogger("waferstream")

_CHECKPOINT = ".mdl"


@contextmanager
def stored(model_dir: Path, mode: Mode) -> Iterator[None]:
    """Bring the files of a run's folder here before the run, and new ones to its store after it.

    Nothing is done for a folder that is in no store.

    Raises:
        CheckpointError: The store denies it. Before the run that ends it; after the run everything
            is in the folder on this host.
        ConfigError: The package for stores of this kind is not installed.
    """
    store = store_of(model_dir)
    if store is None:
        yield
        return
    store.check()
    store.pull(list if mode == "eval_all" else without_old_checkpoints)
    log.info("The folder %s is %s on this host", store.url, model_dir)
    yield
    store.push()
    log.info("Copied the files of the run to %s", store.url)


def without_old_checkpoints(names: Collection[str]) -> Collection[str]:
    """Return the names of all files but of checkpoints before that of the last step."""
    saved = sorted((name for name in names if name.endswith(_CHECKPOINT)), key=_step_of)
    return [name for name in names if name not in saved[:-1]]


def _step_of(name: str) -> tuple[int, str]:
    """Return the first number in a name, for its order."""
    digits = "".join(each if each.isdigit() else " " for each in name).split()
    return int(digits[0]) if digits else -1, name
