"""The compile cache: one folder per digest with the program, its schedule and its kernels.

<compile_dir>/cs_<digits>/
    compiled.pkl    what a cluster loads
    schedule.txt    the static schedule, for people
    kernels.py      the generated kernels, for people
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import warnings
from pathlib import Path

from wsc.compiler.compiled import Compiled
from wsc.compiler.listing import schedule_listing
from wsc.core.errors import ConfigError


class ArtifactCache:
    """Compile artifacts below one folder. Safe to share: a folder appears whole or not at all."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def load(self, digest: str) -> Compiled | None:
        """The artifact of a digest, or None; a damaged one is discarded with a warning."""
        file = self.root / digest / "compiled.pkl"
        if not file.exists():
            return None
        try:
            compiled: Compiled = pickle.loads(file.read_bytes())
        except Exception as error:  # any byte may be damaged; a recompile mends it
            message = f"compile artifact {file} is damaged ({error}); compiling again"
            warnings.warn(message, stacklevel=2)
            shutil.rmtree(file.parent)
            return None
        return compiled

    def store(self, compiled: Compiled) -> Path:
        """Write an artifact; returns its folder. ConfigError if the cache can have no folder."""
        target = self.root / compiled.program.digest
        partial = self._new_folder(target.name)
        try:
            (partial / "compiled.pkl").write_bytes(pickle.dumps(compiled))
            (partial / "schedule.txt").write_text(schedule_listing(compiled.program))
            (partial / "kernels.py").write_text(_kernels_text(compiled))
            os.replace(partial, target)
        except OSError:
            # Another process stored the same artifact first, or the disk is full: the cache is a
            # convenience and never a reason to fail.
            shutil.rmtree(partial, ignore_errors=True)
        return target

    def _new_folder(self, name: str) -> Path:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f".{name}-", dir=self.root))
        except OSError as error:
            raise ConfigError(
                "compile_dir is no folder that can be written to",
                where=str(self.root),
                value=error.strerror,
            ) from error


def _kernels_text(compiled: Compiled) -> str:
    parts = []
    for segment, kernel in zip(compiled.program.segments, compiled.kernels, strict=True):
        parts.append(f"# segment {segment.index}: {segment.layer} {segment.phase}\n{kernel.text}")
    return "\n".join(parts)
