"""A digest of the project's own code, for caches of what that code computes."""

from __future__ import annotations

import hashlib
import time
from functools import cache
from pathlib import Path
from uuid import uuid4

_ROOT = Path(__file__).parents[2]
_STARTED_S = time.time()
"""When this process imported its first modules."""


@cache
def sources_digest(*packages: str, root: Path = _ROOT) -> str:
    """Return the SHA-256 of all modules below some packages, as this process has imported them.

    A module that was written after the process had started may differ from the imported one: the
    digest is then one of its own, which no other process finds.

    Args:
        packages: Folders below ``root``, such as ``waferstream/compiler``.
        root: The folder of the project's packages.
    """
    digest = hashlib.sha256()
    for file in sorted(file for name in packages for file in (root / name).rglob("*.py")):
        source = file.read_bytes()
        digest.update(f"{file.relative_to(root)} {len(source)} ".encode())
        digest.update(source)
        if file.stat().st_mtime > _STARTED_S:
            digest.update(uuid4().bytes)
    return digest.hexdigest()
