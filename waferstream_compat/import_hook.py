"""Import hook: the vendor's front-end and client modules resolve to those of this project.

``install`` puts a finder in front of ``sys.meta_path``; nothing is installed under the vendor's
names. A module of the vendor becomes a thin module that takes its attributes from ours::

    import cerebras.pytorch as cstorch                     # cstorch
    from cerebras.pytorch.utils.data import DataLoader     # cstorch.utils.data
    from cerebras.appliance.errors import ApplianceError   # waferstream.core.errors

Packages and names of the vendor's earlier releases are found, too (``older_names``).
Other packages under ``cerebras``, such as a Model Zoo on the search path, are imported from there.
Programs for release 2.10 expect torch 2.4, to which ``install`` adapts torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from torch.utils import _pytree as pytree

from cstorch.checkpoints import VERSION_KEY
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream_compat import older_names
from waferstream_compat.absent import AbsentFinder

_NAMESPACE = "cerebras"

_OURS: dict[str, str | None] = {
    "cerebras.pytorch": "cstorch",
    "cerebras.pytorch.backend": "waferstream_compat.backends",
    "cerebras.pytorch.backend.ltc_backend": "waferstream_compat.backends",
    "cerebras.pytorch.cirh": "waferstream_compat.experimental",
    "cerebras.pytorch.core": None,
    "cerebras.pytorch.core.annotation": "waferstream_compat.annotations",
    "cerebras.pytorch.core.modes": "waferstream_compat.modes",  # up to release 2.4
    "cerebras.pytorch.distributed.cluster_resolver": "cstorch.utils.data.cluster_resolver",
    "cerebras.pytorch.experimental": "waferstream_compat.experimental",
    "cerebras.pytorch.experimental.listener": "cstorch.listeners",
    "cerebras.pytorch.lib": "waferstream_compat.accepted.compiler_library",
    "cerebras.pytorch.nn": "waferstream_compat.functional",
    "cerebras.pytorch.nn.functional": "waferstream_compat.functional",
    "cerebras.pytorch.profiler": "waferstream_compat.op_profiler",
    "cerebras.pytorch.sparse.configure": "cstorch.sparse",
    "cerebras.pytorch.storage.constants": None,
    "cerebras.pytorch.storage.serializers": "waferstream_compat.accepted.serializers",
    "cerebras.pytorch.utils.call_once": "waferstream_compat.utils.once",
    "cerebras.pytorch.utils.kernel": "waferstream_compat.annotations",
    "cerebras.pytorch.utils.nest": "waferstream_compat.utils.trees",
    "cerebras.pytorch.utils.num_kv_groups": "waferstream_compat.annotations",
    "cerebras.pytorch.utils.tracker": "waferstream_compat.utils.rates",
    "cerebras.pytorch.utils.utils": "cstorch.sparse.filters",
    "cerebras.framework": "waferstream_compat.framework",
    "cerebras.appliance": "waferstream_compat.utils.logs",
    "cerebras.appliance.CSConfig": "waferstream_compat.earlier",  # release 1.7 to 1.9
    "cerebras.appliance.cluster": None,
    "cerebras.appliance.cluster.client": "waferstream_compat.accepted.telemetry",
    "cerebras.appliance.cluster_config": "cstorch.distributed",
    "cerebras.appliance.environment": "waferstream_compat.utils.environment",
    "cerebras.appliance.errors": "waferstream.core.errors",
    "cerebras.appliance.log": "waferstream_compat.utils.logs",
    "cerebras.appliance.run_utils": "cstorch.server_settings",  # up to 2.1
    "cerebras.appliance.storage": "cstorch.checkpoints",
    "cerebras.appliance.storage.base_storage": "cstorch.checkpoints",
    "cerebras.appliance.storage.h5_storage": "cstorch.checkpoints",
    "cerebras.appliance.storage.s3_storage": "cstorch.checkpoints",
    "cerebras.appliance.utils": None,
    "cerebras.appliance.utils.classes": "waferstream_compat.utils.files",
    "cerebras.appliance.utils.debug_args": "cstorch.server_settings",
    "cerebras.appliance.utils.file": "waferstream_compat.utils.files",
    "cerebras.appliance.utils.ini": "cstorch.server_settings",
    "cerebras.appliance.utils.units": "waferstream_compat.utils.files",
}
"""Module of this project for a module of the vendor's and those below it; None for a folder."""

for _package, _now in older_names.PACKAGES.items():
    _below = {
        n.removeprefix(_now): ours for n, ours in _OURS.items() if f"{n}.".startswith(f"{_now}.")
    }
    _OURS |= {_package + rest: ours for rest, ours in _below.items()}

_CONSTANTS: dict[str, object] = {
    "cerebras.pytorch.__version__": "2.10.0",  # the release whose interface this project has
    "cerebras.pytorch._generating_docs": False,
    "cerebras.pytorch.storage.constants.__CSTORCH_VERSION__": VERSION_KEY,
}
"""Values of the vendor's modules that have no counterpart in this project."""

_PLACES = (
    "cerebras.pytorch",
    *(f"cerebras.pytorch.{name}" for name in ("optim", "optim.lr_scheduler", "utils.data", "amp")),
    *(f"cerebras.pytorch.{name}" for name in ("metrics", "sparse", "distributed", "nn")),
    "cerebras.framework",
    "cerebras.appliance.errors",
)
"""Modules in which a name is looked for that is missing where a program asks for it."""

_ABSENT = object()

_INIT = pytree.TreeSpec.__init__


def _init_by_name(self: pytree.TreeSpec, type: Any, *args: Any, **fields: Any) -> None:
    """Accept the names of the fields, too, which ``dataclasses.replace`` passes."""
    names = {"_context": "context", "_children": "children_specs"}
    renamed = {new: fields.pop(old) for old, new in names.items() if old in fields}
    _INIT(self, type, *args, **{**renamed, **fields})


class VendorNameError(ConfigError, AttributeError):
    """A name of one of the vendor's modules that this project does not have."""


class VendorModuleError(ConfigError, ModuleNotFoundError):
    """A module of the vendor's, or a name imported from one, that this project does not have."""


class VendorModule(ModuleType):
    """A module under the vendor's name with the attributes of ours."""

    _ours: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        whole = f"{self.__name__}.{name}"
        if older_names.canonical(whole) in _CONSTANTS:
            return _CONSTANTS[older_names.canonical(whole)]
        if name.startswith("__"):
            raise AttributeError(name)
        if older_names.is_alias(whole):
            return older_names.meaning(whole)
        value = getattr(self._ours, name, _ABSENT)
        is_module = value is _ABSENT or isinstance(value, ModuleType)
        if is_module and (whole in _OURS or _our_name(whole) is not None):
            return import_module(whole)
        if value is _ABSENT:
            raise VendorNameError(**_missing(whole))
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a submodule binds it in its package, where a function may have the name.
        ours = getattr(self._ours, name, value)
        if not isinstance(value, VendorModule) or isinstance(ours, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return _public_names(self.__name__)


class VendorFinder(MetaPathFinder, Loader):
    """Finder and loader of the vendor's modules."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  (of the protocol)
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return how to load a module; None if it is not one of the vendor's.

        Raises:
            VendorModuleError: It is one, and this project does not have it.
        """
        if fullname == _NAMESPACE:
            spec = spec_from_loader(fullname, self, is_package=True)
            assert spec is not None
            folders = (Path(entry) / _NAMESPACE for entry in sys.path)
            spec.submodule_search_locations = [str(f) for f in folders if f.is_dir()]
            return spec
        if _entry(fullname) is None:
            return None
        if fullname not in _OURS and _our_name(fullname) is None:
            raise VendorModuleError(**_missing(fullname))
        return spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return VendorModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        name = _our_name(module.__name__)
        if name is None:
            return
        ours = import_module(name)
        vars(module).update(_ours=ours, __doc__=ours.__doc__)
        if hasattr(ours, "__all__"):
            vars(module)["__all__"] = list(ours.__all__)


def install() -> None:
    """Let this process import the vendor's modules. Idempotent."""
    if _finder not in sys.meta_path:
        _forget_modules()
        pytree.TreeSpec.__init__ = _init_by_name  # type: ignore[method-assign]
        sys.meta_path[:] = [_finder, *sys.meta_path, _absent_finder]


def uninstall() -> None:
    """Remove the hook and the modules that it has loaded. Idempotent."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        sys.meta_path.remove(_absent_finder)
        pytree.TreeSpec.__init__ = _INIT  # type: ignore[method-assign]
        _forget_modules()


_finder = VendorFinder()
_absent_finder = AbsentFinder()


def _forget_modules() -> None:
    for name in [n for n in sys.modules if n == _NAMESPACE or _entry(n) is not None]:
        del sys.modules[name]


def _entry(name: str) -> str | None:
    """Return the longest prefix of a module's name that ``_OURS`` holds."""
    while name and name not in _OURS:
        name = name.rpartition(".")[0]
    return name or None


def _our_name(name: str) -> str | None:
    """Return the name of our module for one of the vendor's, None if there is none."""
    entry = _entry(name)
    ours = None if entry is None else _OURS[entry]
    if entry is None or ours is None:
        return None
    whole = ours + name.removeprefix(entry)
    try:
        return whole if find_spec(whole) is not None else None
    except ModuleNotFoundError:  # the parent is not a package
        return None


def _missing(name: str) -> dict[str, Any]:
    """Return the fields of the error about a name of the vendor's that does not exist here."""
    package, _, last = name.rpartition(".")
    known = _public_names(package)
    remedy = older_names.instead_of(name) or _elsewhere(last) or did_you_mean(last, known)
    return {
        "what": f"{name} does not exist in WaferStream",
        "code": "vendor-name-missing",
        "where": package,
        "value": last,
        "rule": f"dir({package}) lists the names that exist",
        "remedy": remedy,
    }


def _elsewhere(name: str) -> str | None:
    """Return the remedy for a name that other modules have, None if none has it."""
    found = [f"{place}.{name}" for place in _PLACES if name in _public_names(place)]
    return f"did you mean {found[0]!r}?" if found else None


def _public_names(package: str) -> list[str]:
    """Return the names that a module of the vendor's has here."""
    names = {n.removeprefix(f"{package}.") for n in _OURS if n.startswith(f"{package}.")}
    ours_name = _our_name(package)
    if ours_name is not None:
        ours = import_module(ours_name)
        names |= set(getattr(ours, "__all__", dir(ours)))
        names |= {module.name for module in iter_modules(getattr(ours, "__path__", []))}
    return sorted(name for name in names if not name.startswith("_") and "." not in name)
