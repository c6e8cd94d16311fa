"""The files of a program beside its checkpoints: the compile cache, and a folder for every loop.

<artifact_dir>/cached_compile/cs_...          unless compile_dir is given
<artifact_dir>/executors/000001, ...          executors/latest is the newest
<artifact_dir>/model.csx                      the compiled programs of the model, by kind
"""

from __future__ import annotations

from pathlib import Path

from waferstream.compiler.artifact import ArtifactCache
from waferstream.core.program.program import Program
from waferstream.host.files import write_json

DEFAULT = "cerebras_logs"
"""The artifact folder of a program that names none, in the working folder (section 4.6)."""

COMPILED = "model.csx"
"""A file in the artifact folder that exists once a model is compiled, for which lessons look."""


class Artifacts:
    """The folders of a backend.

    Args:
        folder: The artifact folder. If None, it is ``cerebras_logs`` in the working folder, and
            holds only what a program asks for: no compile cache.
        compile_dir: The compile cache, if it is elsewhere.
    """

    def __init__(self, folder: Path | str | None, compile_dir: Path | str | None) -> None:
        self._folder = None if folder is None else Path(folder).absolute()
        self._compile_dir = None if compile_dir is None else Path(compile_dir)
        self._has_program_file = folder is not None  # a run of the command has other files
        self._compiled: dict[str, dict[str, object]] = {}

    @property
    def folder(self) -> Path:
        """The artifact folder, which may not exist yet."""
        return self._folder or Path.cwd() / DEFAULT

    @folder.setter
    def folder(self, folder: Path | str) -> None:
        self._folder = Path(folder).absolute()

    @property
    def is_chosen(self) -> bool:
        """Whether the program has named the folder."""
        return self._folder is not None

    @property
    def cache(self) -> ArtifactCache | None:
        """The compile cache; None if the program has named neither of both folders."""
        if self._compile_dir is not None:
            return ArtifactCache(self._compile_dir)
        return ArtifactCache(self._folder / "cached_compile") if self._folder else None

    def note_compiled(self, program: Program) -> None:
        """Tell a compiled program in ``model.csx``, if a user's program has named the folder."""
        if not self._has_program_file or self.cache is None:
            return
        self._compiled[program.kind] = {
            "artifact": str(self.cache.root / program.digest),
            "batch_size": program.batch_size,
            "micro_batch_size": program.micro_batch_size,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / COMPILED, self._compiled)

    def new_executor(self) -> Path:
        """Make the folder of the next executor loop, and let ``latest`` point to it."""
        executors = self.folder / "executors"
        executors.mkdir(parents=True, exist_ok=True)
        taken = [int(path.name) for path in executors.iterdir() if path.name.isdecimal()]
        folder = executors / f"{max(taken, default=0) + 1:06d}"
        folder.mkdir()
        latest = executors / "latest"
        latest.unlink(missing_ok=True)
        latest.symlink_to(folder.name, target_is_directory=True)
        return folder
