"""What another process needs in order to import the user's code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from waferstream.core.user_code import is_refused

_installers: list[str] = []  # modules whose install() prepares the imports of this process


def prepare_imports_with(module: str) -> None:
    """Call ``install()`` of a module, here and in every process that is started from here."""
    import_module(module).install()
    if module not in _installers:
        _installers.append(module)


def imports_end_with(module: str) -> None:
    """Call ``uninstall()`` of a module; processes that are started later do not install it."""
    import_module(module).uninstall()
    if module in _installers:
        _installers.remove(module)


@contextmanager
def importing_from(folders: Iterable[Path]) -> Iterator[None]:
    """Let this process, and processes started in the block, import from these folders, too.

    They come last, as in a process that is started from here: no module of this project, nor an
    installed one, is hidden by a file of the same name. Where the environment refuses the code of
    files, there are none: a folder could hold a package that this project imports where it is
    installed.
    """
    before = list(sys.path)
    own = () if is_refused() else folders
    sys.path.extend(path for folder in own if (path := str(folder.resolve())) not in sys.path)
    try:
        yield
    finally:
        sys.path[:] = before


@dataclass(frozen=True)
class UserCode:
    """Search path and import hooks of the process that starts another one.

    It consists of strings only, so that it can be unpickled before it is installed.
    """

    search_path: tuple[str, ...]
    installers: tuple[str, ...]

    @classmethod
    def here(cls) -> UserCode:
        """Return those of this process."""
        return cls(tuple(sys.path), tuple(_installers))

    def install(self) -> None:
        """Let this process import everything that its starter can import."""
        sys.path.extend(path for path in self.search_path if path not in sys.path)
        for module in self.installers:
            prepare_imports_with(module)
