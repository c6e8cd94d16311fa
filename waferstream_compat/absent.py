"""Stand-ins for packages that no registry has, and that the vendor's Model Zoo always imports.

They are found where the package is not installed. Their names can be imported; a call is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from waferstream_compat.refused import refused

_SOURCES = {"bigcode_eval": "https://github.com/bigcode-project/bigcode-evaluation-harness"}
"""Where each package comes from."""


class AbsentModule(ModuleType):
    """A module of a package that is not installed, with any name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        package = self.__name__.partition(".")[0]
        return refused(f"{self.__name__}.{name}", f"install {package} from {_SOURCES[package]}")


class AbsentFinder(MetaPathFinder, Loader):
    """Finder and loader of these packages; it comes after all others."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  (of the protocol)
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return how to load a module of one of the packages; None for any other."""
        if fullname.partition(".")[0] not in _SOURCES:
            return None
        return spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module without names of its own."""
