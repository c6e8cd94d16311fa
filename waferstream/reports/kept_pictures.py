"""Pictures that were drawn before, found without importing matplotlib.

A picture is kept under a digest of all that it follows from: the function that draws it, what it
shows, the project's own code, and the releases of Python and of the packages that draw. It is
sealed by its user: nobody else's counts.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from waferstream.host.files import remove_oldest, replacing
from waferstream.host.sources import OWN_PACKAGES, sources_digest
from waferstream.host.user_state import is_sealed, sealed, state_folder

_MOST_KEPT = 96
"""Of some hundred KiB each."""

_DRAWING = ("matplotlib", "numpy", "pillow")


def draw_once(path: Path, place: str, *shown: object) -> None:
    """Write a picture as the function ``place`` draws it; a kept one if it has drawn the same.

    Args:
        path: The file.
        place: Module and name of a function that draws to a path what it is given, and nothing
            else; its module is imported only if it has to draw.
        shown: What it is given: plain data and dataclasses, whose ``repr`` says all of it.
    """
    kept = _file_of(place, shown)
    content = None if kept is None else _read(kept)
    if content is not None:
        with replacing(path) as partial:
            partial.write_bytes(content)
        return
    module, _, name = place.partition(":")
    getattr(import_module(module), name)(path, *shown)
    if kept is not None:
        _keep(kept, path.read_bytes())


def _file_of(place: str, shown: tuple[object, ...]) -> Path | None:
    """Return where a picture is kept; None for a user without a state folder."""
    parts = (place, shown, sys.version, *map(version, _DRAWING), sources_digest(*OWN_PACKAGES))
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    with suppress(OSError):
        return state_folder() / "pictures" / f"{digest}.png"
    return None


def _read(kept: Path) -> bytes | None:
    """Return a picture that this user has kept; None if there is none, or it is damaged."""
    with suppress(OSError, ValueError):
        seal, _, content = kept.read_bytes().partition(b"\n")
        if is_sealed(kept.name.encode() + content, seal.decode()):
            return content
    return None


def _keep(kept: Path, content: bytes) -> None:
    with suppress(OSError):  # the disk is full, or read-only: the next picture takes longer
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(kept) as partial:
            seal = sealed(kept.name.encode() + content).encode()
            partial.write_bytes(seal + b"\n" + content)
        remove_oldest(kept.parent, "*.png", _MOST_KEPT)
