"""A digest of the project's own code, for caches of what that code computes."""

from __future__ import annotations

import hashlib
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

OWN_PACKAGES = (
    *("appliance", "csnode", "cstorch", "memoryx", "modelzoo", "swarmx"),
    "waferstream",
)
"""Packages whose code decides the program of a step, and the zoo."""

_STARTED_S = time.time()
"""When this process imported its first modules."""


@cache
def sources_digest(*packages: str, root: Path | None = None) -> str:
    """Return the SHA-256 of all modules below some packages, as this process has imported them.

    A module that was written after the process had started may differ from the imported one: the
    digest is then one of its own, which no other process finds.

    Args:
        packages: Their names, such as ``waferstream``; one that is not installed has no modules.
        root: The folder that holds them; by default that from which each would be imported.
    """
    digest = hashlib.sha256()
    folders = {name: root / name if root else _folder_of(name) for name in packages}
    files = (
        (f"{name}/{file.relative_to(folder)}", file)
        for name, folder in folders.items()
        if folder is not None
        for file in folder.rglob("*.py")
    )
    for name, file in sorted(files):
        source = file.read_bytes()
        digest.update(f"{name} {len(source)} ".encode())
        digest.update(source)
        if file.stat().st_mtime > _STARTED_S:
            digest.update(uuid4().bytes)
    return digest.hexdigest()


def _folder_of(package: str) -> Path | None:
    """Return the folder of a package; distributions need not lie side by side."""
    found = find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent
