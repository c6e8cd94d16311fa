"""State in Python that a traced step can read: what it is, and whether it has changed.

A step reads attributes of its model, variables of the functions around it, globals that its code
names, and what lies in them. Code of torch and of this project is not searched, and of installed
packages only their objects: what they keep is found by recording a step twice (``StateWatch``).
"""

from __future__ import annotations

import dis
import functools
import linecache
import os
import random
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from cstorch.recording.step_value import LeftTensor
from cstorch.tracing.state_places import (
    PLAIN,
    Access,
    Array,
    Cell,
    Class,
    Content,
    Draws,
    Names,
    Place,
    Progress,
    Replayed,
    Variables,
    Version,
    equal,
    is_iterator,
)

_MOST_PLACES = 50_000
_MOST_ITEMS = 10_000
"""Elements of a container beyond which it is data, not state."""

_OWN = {"appliance", "csnode", "cstorch", "memoryx", "modelzoo", "swarmx", "validation"}
_OWN |= {"waferstream", "waferstream_compat"}
_ROOT = Path(__file__).resolve().parents[2]
_TORCH = f"{Path(torch.__file__).parent}/"
_LIBRARIES = (
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(f"{each}/" for each in sys.path if each.endswith("-packages")),  # of a venv's base, too
    *(f"{_ROOT / name}/" for name in _OWN),
    "<frozen ",
)
"""Beginnings of the paths of code that is not searched."""

_CLOSED = {*_OWN, "numpy", "ray", "rich", "tensorboardX", "torch", "torchvision", "tqdm"} | (
    sys.stdlib_module_names - {"__main__", "argparse", "types"}
)
"""Packages whose objects are not searched, but for modules of torch."""

DRAWN = "random numbers"
"""The name of what a run draws, among what it counts."""

_DRAWING = {"random", "rand", "randn", "randint", "integers", "normal", "standard_normal", "gauss"}
_DRAWING |= {"uniform", "choice", "choices", "sample", "shuffle", "permutation", "binomial"}

_ENVIRONMENT = {"environ", "getenv"}
"""Names by which code reads variables of the environment."""

_SKIPPED = frozenset(
    {"_parameters", "_buffers", "_non_persistent_buffers_set", "_backward_pre_hooks"}
    | {"_backward_hooks", "_is_full_backward_hook", "_forward_hooks_with_kwargs"}
    | {"_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks"}
    | {"_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"}
)
"""Attributes of a module that hold no state of Python."""

_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})
"""Attributes that a recurrent module of torch renews where it finds other parameters."""


class PythonState:
    """What a step can read in Python, with a copy of what it held when this was made."""

    def __init__(self, *roots: object) -> None:
        search = _Search()
        for root in roots:
            search.root(root)
        self._places, self._codes = search.places, search.codes
        self._draws = [place for place in self._places if isinstance(place, Draws)]
        self._others = [place for place in self._places if not isinstance(place, Content | Draws)]
        contents = [place for place in self._places if isinstance(place, Content)]
        self._held = [place.held for place in contents]
        self._copies = [place.copy for place in contents]
        self._counts = self.counts()

    def is_current(self) -> bool:
        """Return whether everything still is what it was, generators of random numbers aside.

        They may move as the program likes, as long as the step does not draw from them.
        """
        if equal(self._held, self._copies):  # all containers at once, which takes the least time
            return all(place.is_same() for place in self._others)
        return all(place.is_same() for place in self._places if not isinstance(place, Draws))

    def has_drawn(self) -> bool:
        """Return whether a generator of random numbers has moved."""
        return not all(place.is_same() for place in self._draws)

    def has_counted(self) -> bool:
        """Return whether an integer or a generator of random numbers has changed."""
        return self.counts() != self._counts

    def counts(self) -> dict[str, list[str]]:
        """Return the counts of a run: integers by name, and positions of generators."""
        found: dict[str, list[str]] = {}
        for place in self._places:
            for key, value in place.items():
                if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
                    found.setdefault(str(key), []).append(repr(value))
        return found | {DRAWN: [place.state for place in self._draws]}

    def line_of(self, count: str) -> str | None:
        """Return ``file:line: source`` of the first code that writes a count of ``counts``."""
        for code in self._codes:
            for each in dis.get_instructions(code):
                is_found = (
                    each.argval in _DRAWING
                    if count == DRAWN
                    else each.argval == count and each.opname.startswith("STORE")
                )
                if is_found and each.positions is not None and each.positions.lineno is not None:
                    line = each.positions.lineno
                    source = linecache.getline(code.co_filename, line).strip()
                    return f"{code.co_filename}:{line}: {source}"
        return None

    def mark_traced(self) -> bool:
        """Mark the tensors that a trace has left there as such; return whether there were some."""
        return sum(place.swap(_is_traced, LeftTensor) for place in self._places) > 0

    def rewind(self) -> None:
        """Put back what was there."""
        for place in self._places:
            place.rewind()


class _Search:
    """Finds the places that objects lead to."""

    def __init__(self) -> None:
        self.places: list[Place] = [
            Draws(random.getstate, random.setstate),
            Draws(np.random.get_state, np.random.set_state),
        ]
        self.codes: list[CodeType] = []  # of the user
        self._seen: dict[int, object] = {}  # by identity, kept alive
        self._open: deque[object] = deque()
        self._iterators: dict[int, Replayed] = {}  # by the identity of what they stand for

    def root(self, found: object) -> None:
        """Add the places that an object leads to; the object behind a method is always searched."""
        owner = getattr(found, "__self__", None)
        if owner is not None and isinstance(getattr(owner, "__dict__", None), dict):
            self._attributes(owner)
        self._open.append(found)
        while self._open and len(self.places) < _MOST_PLACES:
            each = self._open.popleft()
            if not isinstance(each, PLAIN) and id(each) not in self._seen:
                self._seen[id(each)] = each
                self._visit(each)

    def _visit(self, found: Any) -> None:
        for kinds, visit in _VISITS:
            if isinstance(found, kinds):
                visit(self, found)
                return
        if is_iterator(found):
            self.places.append(Progress(found))
        else:
            self._object(found)

    def _parts(self, found: Any) -> None:
        self._open.extend(found)

    def _builtin(self, found: Any) -> None:
        self._open.append(found.__self__)  # a module, or a generator for example

    def _nothing(self, found: Any) -> None:
        """Search nothing."""

    def _partial(self, found: functools.partial[Any]) -> None:
        self._open.extend((found.func, found.args, found.keywords))

    def _method(self, found: MethodType) -> None:
        self._open.extend((found.__self__, found.__func__))

    def _array(self, found: np.ndarray) -> None:
        if found.size <= _MOST_ITEMS and not found.dtype.hasobject:
            self.places.append(Array(found))

    def _context_variable(self, found: ContextVar[Any]) -> None:
        self.places.append(Access(lambda: found.get(None), found.set))
        self._open.append(found.get(None))

    def _random(self, found: random.Random) -> None:
        self.places.append(Draws(found.getstate, found.setstate))

    def _random_of_numpy(self, found: np.random.RandomState) -> None:
        self.places.append(Draws(found.get_state, found.set_state))

    def _tensor(self, found: torch.Tensor) -> None:
        is_value = not isinstance(found, FakeTensor | nn.Parameter) and type(found) is torch.Tensor
        if is_value and not found.is_inference():
            self.places.append(Version(found, found._version))

    def _content(self, found: Any) -> None:
        if len(found) <= _MOST_ITEMS:
            self._hold(lambda: Content(found))
            self._open.extend(found.values() if isinstance(found, dict) else found)

    def _hold(self, make: Callable[[], Place]) -> None:
        """Add a place; let iterators that it holds be read again."""
        place = make()
        self.places.append(make() if place.swap(is_iterator, self._replayed) else place)

    def _replayed(self, iterator: Any) -> Replayed:
        return self._iterators.setdefault(id(iterator), Replayed(iterator))

    def _replay(self, found: Replayed) -> None:
        self.places.append(Progress(found))

    def _generator(self, found: np.random.Generator) -> None:
        bits = found.bit_generator
        self.places.append(Draws(lambda: bits.state, lambda state: setattr(bits, "state", state)))

    def _object(self, found: Any) -> None:
        if type(found).__module__.partition(".")[0] in _CLOSED:
            if isinstance(found, nn.Module):
                self._attributes(found)
            elif hasattr(found, "__wrapped__"):  # a function with a cache
                self._open.append(found.__wrapped__)
            return
        self._attributes(found)
        self._open.append(type(found))

    def _attributes(self, found: Any) -> None:
        held = getattr(found, "__dict__", None)
        if isinstance(held, dict):
            derived = _DERIVED if isinstance(found, nn.RNNBase) else frozenset[str]()
            self._hold(lambda: Content(held, derived))
            skipped = _SKIPPED | derived if isinstance(found, nn.Module) else derived
            self._open.extend(value for key, value in held.items() if key not in skipped)
        slots = [
            name
            for kind in type(found).__mro__
            for name, member in vars(kind).items()
            if isinstance(member, MemberDescriptorType)
        ]
        if slots:
            self._names(found, slots)

    def _class(self, found: type) -> None:
        """Search a class of the user: its attributes, and the code of its methods."""
        for kind in found.__mro__:
            source = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
            if kind.__module__ == "builtins" or not _is_users(source):
                continue
            members = vars(kind)
            for member in members.values():
                code = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(code, FunctionType):
                    self._open.append(code)
            self._hold(functools.partial(Class, kind))
            self._open.extend(members[name] for name in members if not name.startswith("__"))

    def _names(self, owner: Any, names: list[str]) -> None:
        self._hold(lambda: Names(owner, names))
        self._open.extend(getattr(owner, name) for name in names if hasattr(owner, name))

    def _function(self, found: FunctionType) -> None:
        path = found.__code__.co_filename
        if not _is_users(path):
            if path.startswith(_TORCH) and hasattr(found, "__wrapped__"):
                self._open.append(found.__wrapped__)  # the user's, without gradients for example
            return
        if found.__dict__:
            self.places.append(Content(found.__dict__))
            self._open.extend(found.__dict__.values())
        self._open.extend((found.__defaults__ or (), found.__kwdefaults__ or {}))
        for cell in found.__closure__ or ():
            self._cell(cell)
        for code in _codes(found.__code__):
            self.codes.append(code)
            self._globals(code, found.__globals__)

    def _cell(self, cell: CellType) -> None:
        try:
            cell.cell_contents  # noqa: B018  (it may be a variable without a value yet)
        except ValueError:
            return
        if id(cell) not in self._seen:
            self._seen[id(cell)] = cell
            self._hold(lambda: Cell(cell))
            self._open.append(cell.cell_contents)

    def _globals(self, code: CodeType, scope: dict[str, Any]) -> None:
        """Search the globals that code names, and what it names in modules of the user."""
        names, attributes = set(), set()
        for each in dis.get_instructions(code):
            if each.opname.endswith(("_GLOBAL", "_NAME")):
                names.add(each.argval)
            elif each.opname in {"LOAD_ATTR", "STORE_ATTR", "LOAD_METHOD"}:
                attributes.add(each.argval)
        if not _ENVIRONMENT.isdisjoint(attributes | names):
            self._open.append(vars(os.environ)["_data"])
        self._variables(scope, names)
        for name in names & scope.keys():
            value = scope[name]
            if isinstance(value, ModuleType) and _is_users(getattr(value, "__file__", None) or ""):
                self._variables(vars(value), attributes)

    def _variables(self, scope: dict[str, Any], names: set[str]) -> None:
        found = sorted(names & scope.keys())
        self._hold(lambda: Variables(scope, found))
        self._open.extend(scope[name] for name in found)


_VISITS: tuple[tuple[Any, Callable[[_Search, Any], None]], ...] = (
    (torch.Tensor, _Search._tensor),
    (Replayed, _Search._replay),
    (np.ndarray, _Search._array),
    (dict | list | deque | set | bytearray, _Search._content),
    (tuple | frozenset, _Search._parts),
    (functools.partial, _Search._partial),
    (MethodType, _Search._method),
    (FunctionType, _Search._function),
    (type, _Search._class),
    (threading.local, _Search._attributes),
    (ContextVar, _Search._context_variable),
    (random.Random, _Search._random),
    (np.random.Generator, _Search._generator),
    (np.random.RandomState, _Search._random_of_numpy),
    (BuiltinMethodType, _Search._builtin),
    (ModuleType | CodeType, _Search._nothing),
)
"""What is searched in objects of each kind; of all others, iterators and attributes."""


def _is_traced(found: object) -> bool:
    return isinstance(found, FakeTensor)


def _is_users(path: str) -> bool:
    """Return whether a file, or another source of code, is the user's."""
    return not path.startswith(_LIBRARIES)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
