"""Places where a user's program keeps state in Python, with a copy of what they held.

A place is compared with its copy in well under a microsecond where nothing has changed, since
Python compares dicts and lists by identity first. What differs is looked at value by value: tensors
of a trace stand for no value and count as equal, other objects are equal if they are the same, or
plain data with the same content.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CellType, GeneratorType
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from cstorch.recording.step_value import LeftTensor
from waferstream.core.errors import ApplianceCompilationError

_DEPTH = 4
"""Levels of nested containers that are compared by content where one was replaced by another."""

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, range)

_MISSING = object()


class Place(ABC):
    """A place of state, and a copy of what it held."""

    @abstractmethod
    def is_same(self) -> bool:
        """Return whether the place holds what it held."""

    @abstractmethod
    def rewind(self) -> None:
        """Put back what it held."""

    def swap(self, is_meant: Callable[[Any], bool], make: Callable[[Any], Any]) -> bool:
        """Replace each object that is meant and that it holds now; return whether there was one.

        A place of one value that is no object holds none.
        """
        found = [(key, value) for key, value in self.items() if is_meant(value)]
        for key, value in found:
            self.put(key, make(value))
        return bool(found)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return the objects that it holds now, by what ``put`` takes."""
        return ()

    def put(self, key: Any, value: Any) -> None:
        """Hold another object."""
        raise NotImplementedError


class Content(Place):
    """A dict (also one with the attributes of an object), a list, a deque, a set or bytes.

    Args:
        held: It.
        derived: Keys of a dict whose values follow from other state, and are none.
    """

    def __init__(self, held: Any, derived: frozenset[str] = frozenset()) -> None:
        self.held, self._derived = held, derived
        self.copy = self._state() if isinstance(held, dict) else copy.copy(held)

    def _state(self) -> Any:
        if not self._derived:
            return dict(self.held)
        return {key: value for key, value in self.held.items() if key not in self._derived}

    def is_same(self) -> bool:
        if equal(self.held, self.copy):
            return True
        return same(self._state() if self._derived else self.held, self.copy)

    def items(self) -> Iterable[tuple[Any, Any]]:
        if isinstance(self.held, dict):
            return self.held.items()
        return enumerate(self.held) if isinstance(self.held, list | deque) else ()

    def put(self, key: Any, value: Any) -> None:
        self.held[key] = value

    def rewind(self) -> None:
        if self.is_same():
            return
        if isinstance(self.held, dict):
            for key in self._state().keys() - self.copy.keys():
                del self.held[key]
            self.held.update(self.copy)
        else:
            self.held.clear()
            add = self.held.update if isinstance(self.held, set) else self.held.extend
            add(self.copy)


class Class(Place):
    """The attributes of a class, methods included."""

    def __init__(self, kind: type) -> None:
        self._kind, self._copy = kind, dict(vars(kind))

    def is_same(self) -> bool:
        return equal(vars(self._kind), self._copy) or same(dict(vars(self._kind)), self._copy)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return vars(self._kind).items()

    def put(self, key: Any, value: Any) -> None:
        setattr(self._kind, key, value)

    def rewind(self) -> None:
        now = dict(vars(self._kind))
        for name in now.keys() - self._copy.keys():
            delattr(self._kind, name)
        for name, value in self._copy.items():
            if now.get(name, _MISSING) is not value:
                setattr(self._kind, name, value)


class Names(Place):
    """Some attributes of an object with slots."""

    def __init__(self, owner: Any, names: Iterable[str]) -> None:
        self._owner = owner
        self._copy = {name: getattr(owner, name) for name in names if hasattr(owner, name)}

    def is_same(self) -> bool:
        return all(
            same(getattr(self._owner, name, _MISSING), value) for name, value in self._copy.items()
        )

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(name, getattr(self._owner, name, None)) for name in self._copy]

    def put(self, key: Any, value: Any) -> None:
        setattr(self._owner, key, value)

    def rewind(self) -> None:
        for name, value in self._copy.items():
            if getattr(self._owner, name, _MISSING) is not value:
                setattr(self._owner, name, value)


class Variables(Place):
    """Some variables of a module."""

    def __init__(self, scope: dict[str, Any], names: Iterable[str]) -> None:
        self._scope = scope
        self._copy = {name: scope[name] for name in names}

    def is_same(self) -> bool:
        return all(
            same(self._scope.get(name, _MISSING), value) for name, value in self._copy.items()
        )

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(name, self._scope.get(name)) for name in self._copy]

    def put(self, key: Any, value: Any) -> None:
        self._scope[key] = value

    def rewind(self) -> None:
        self._scope.update(self._copy)


class Cell(Place):
    """A variable that a function shares with the one around it."""

    def __init__(self, cell: CellType) -> None:
        self._cell, self._copy = cell, cell.cell_contents

    def is_same(self) -> bool:
        return same(self._cell.cell_contents, self._copy)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(None, self._cell.cell_contents)]

    def put(self, key: Any, value: Any) -> None:  # noqa: ARG002  (there is one)
        self._cell.cell_contents = value

    def rewind(self) -> None:
        self._cell.cell_contents = self._copy


class Array(Place):
    """An array of NumPy."""

    def __init__(self, held: np.ndarray) -> None:
        self.held, self._copy = held, held.copy()

    def is_same(self) -> bool:
        return self.held.tobytes() == self._copy.tobytes()

    def rewind(self) -> None:
        if not self.is_same():
            self.held[...] = self._copy


@dataclass
class Version(Place):
    """A tensor that is no parameter and no buffer: how often it was written."""

    tensor: torch.Tensor
    version: int

    def is_same(self) -> bool:
        return self.tensor._version == self.version

    def rewind(self) -> None:
        """Do nothing: a traced step writes to no tensor from outside."""


class Access(Place):
    """A value that functions read and write."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], Any]) -> None:
        self._read, self._write = read, write
        self._copy = copy.deepcopy(read())

    def is_same(self) -> bool:
        return same(self._read(), self._copy)

    def rewind(self) -> None:
        self._write(self._copy)


class Draws(Access):
    """A generator of random numbers."""

    @property
    def state(self) -> str:
        """The present state of the generator, as text; ``repr`` of an array may leave some out."""
        return pickle.dumps(self._read()).hex()


class Replayed(Iterator[Any]):
    """An iterator of Python's own that gives again what was read of it since a place noted it.

    It stands for the iterator in the variable that held it. What else reads the iterator itself
    takes turns with it: between the steps nothing is left to be given again.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self.source = source
        self.position = 0
        self._first = 0  # the position of the first element kept
        self._kept: list[Any] = []
        self._places: WeakSet[Progress] = WeakSet()  # which may go back

    def __next__(self) -> Any:
        if not self.is_behind:
            self._kept.append(next(self.source))
        self.position += 1
        return self._kept[self.position - self._first - 1]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of protocols, such as that of copies
            raise AttributeError(name)
        return getattr(self.source, name)

    @property
    def is_behind(self) -> bool:
        """Whether the next element was read before."""
        return self.position < self._first + len(self._kept)

    def note(self, place: Progress) -> int:
        """Return the position, to which a place may go back as long as it is there."""
        first = min((each.position for each in self._places), default=self.position)
        del self._kept[: first - self._first]
        self._first = first
        self._places.add(place)
        return self.position


class Progress(Place):
    """How far an iterator of Python's own has come."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self.position = iterator.note(self) if isinstance(iterator, Replayed) else 0
        self._copy = _progress(iterator)

    def is_same(self) -> bool:
        if isinstance(self._iterator, Replayed) and self._iterator.is_behind:
            return self._iterator.position == self.position
        return same(_progress(self._iterator), self._copy)

    def rewind(self) -> None:
        """Go back; ApplianceCompilationError if nothing keeps what was read since."""
        if isinstance(self._iterator, Replayed):
            self._iterator.position = self.position
        elif not self.is_same():
            raise ApplianceCompilationError(
                "a step that is recorded twice must not read an iterator that it cannot replace",
                code="step-reads-iterator",
                value=type(self._iterator).__name__,
                rule="Python runs again for another size of micro-batches",
                remedy="hold it in a variable, a list or an attribute, not in a tuple or an "
                "argument, or set csx.performance.micro_batch_size to an integer that divides the "
                "batch",
            )


def _progress(iterator: Any) -> Any:
    """Return the position of an iterator; an object of its own if it has none."""
    if isinstance(iterator, Replayed):
        return [iterator.position, _progress(iterator.source)]
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return None if frame is None else (frame.f_lasti, dict(frame.f_locals))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of newer versions of Python
            parts = iterator.__reduce__()
    except TypeError:
        return object()
    return [_progress(part) if is_iterator(part) else part for part in _flat(parts)]


def is_iterator(found: object) -> bool:
    """Return whether an object is an iterator of Python's own."""
    return isinstance(found, Iterator) and type(found).__module__ in {"builtins", "itertools"}


def _flat(parts: Any) -> Iterator[Any]:
    """Yield the parts of what an iterator is pickled as."""
    for part in parts:
        yield from _flat(part) if isinstance(part, tuple) else (part,)


def equal(one: object, other: object) -> bool:
    """Return whether Python finds two containers equal; False where it cannot tell."""
    try:
        return bool(one == other)
    except Exception:  # of tensors and arrays, which have no single truth
        return False


def same(one: Any, other: Any, depth: int = _DEPTH) -> bool:
    """Return whether two values are the same for a traced step that reads them."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (*PLAIN, set, frozenset, bytearray)):
        return bool(one == other)
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
    if isinstance(one, dict | list | tuple | deque) and depth > 0:
        return len(one) == len(other) and all(
            same(a, b, depth - 1) for a, b in zip(_parts(one), _parts(other), strict=True)
        )
    return isinstance(one, FakeTensor | LeftTensor)


def _parts(held: Any) -> Iterable[Any]:
    """Return the elements of a container, of a dict in pairs with their keys."""
    return held.items() if isinstance(held, dict) else held
