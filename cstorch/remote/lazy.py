"""Lazy creation of models: parameters take no memory until MemoryX holds them.

Inside ``with backend.device:`` a new empty tensor of a floating-point type has no memory, and the
calls that initialize it (``normal_``, ``nn.init.kaiming_uniform_``) are recorded instead of run. A
model that fits this process easily is initialized when the context ends, exactly as without
laziness. A larger one stays as it is: when the cluster starts, the recorded calls are run in their
order, and each value is sent to its weight server and freed at once.

Random generators are the same in both cases: recorded calls draw from the state that theirs had at
the first of them, and any other random op inside the context first runs what is recorded.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from cstorch.remote.tensor import Holder, Remote, RemoteTensor, alias_of, is_parameter

STAYS_LAZY_BYTES = 1 << 30
"""Models with more bytes of parameters stay lazy after the context in which they are made."""

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class LazyTensor(Remote):
    """A tensor whose value is the result of recorded calls, until it is needed."""

    def __init__(self, tensor: torch.Tensor, record: InitRecord) -> None:
        super().__init__("", tensor, record, is_fresh=False)
        self.record = record
        self.is_pending = True

    def move_to(self, name: str, parameter: torch.Tensor, holder: Holder) -> None:
        """Become a parameter of a compiled model, whose holder will have the value."""
        self.name, self.tensor, self.holder = name, parameter, holder

    def defer(self, func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        if not self.is_pending or not _is_in_place(func, args, kwargs):
            return False
        self.record.append(_Call(self, func, args[1:], kwargs))
        return True

    def finish(self) -> None:
        """Note that the storage has the value."""
        self.is_pending, self._is_fresh = False, True

    def release(self) -> None:
        """Free the memory; the recorded calls can make the value again."""
        self.plain.untyped_storage().resize_(0)

    def read(self) -> torch.Tensor:
        if self.is_pending:
            self.record.run(first=self)
        return super().read()

    def overwrite(self) -> None:
        self.is_pending = False
        super().overwrite()

    def outdate(self) -> None:
        self.is_pending = False
        super().outdate()


@dataclass(frozen=True)
class _Call:
    """A call that initializes a tensor in place."""

    target: LazyTensor
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def generator(self) -> torch.Generator:
        """The generator that the call draws from, if it draws."""
        return self.kwargs.get("generator") or torch.default_generator

    @property
    def overwrites(self) -> bool:
        """Whether the value before the call does not matter."""
        name = self.function.__name__
        return hasattr(nn.init, name) or name in ("zero_", "fill_", "exponential_")

    def run(self, tensor: torch.Tensor) -> None:
        """Run the call on a tensor of the target's shape."""
        with torch.no_grad():
            self.function(tensor, *self.args, **self.kwargs)


class InitRecord:
    """The calls that initialize the lazy tensors of one context, in order.

    It is the holder of its tensors until they belong to a compiled model.
    """

    has_ended = False

    def __init__(self) -> None:
        self.tensors: list[LazyTensor] = []
        self._calls: list[_Call] = []
        self._states: dict[torch.Generator, torch.Tensor] = {}  # at the first call that draws
        self.is_running = False

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors once they are initialized."""
        return sum(lazy.tensor.nbytes for lazy in self.tensors)

    def create(self, tensor: torch.Tensor) -> RemoteTensor:
        """Return an empty tensor as a lazy one, without memory."""
        tensor.untyped_storage().resize_(0)
        lazy = LazyTensor(tensor, self)
        self.tensors.append(lazy)
        return alias_of(lazy)

    def append(self, call: _Call) -> None:
        """Record a call, which draws from its generator as that is at the first of them."""
        if call.generator not in self._states:
            self._states[call.generator] = call.generator.get_state()
        self._calls.append(call)

    def run(self, first: LazyTensor | None = None) -> None:
        """Initialize all tensors; or only ``first``, if no call was recorded for it."""
        if self.is_running:
            return
        if first is not None and all(call.target is not first for call in self._calls):
            first.allocate()
            first.finish()
            return
        for lazy in self.values():
            lazy.finish()
        self._calls, self._states = [], {}

    def values(self) -> Iterator[LazyTensor]:
        """Run the recorded calls; yield each pending tensor when its storage has the value.

        Only tensors whose calls have begun and not ended take memory, if the caller releases those
        that it gets. A call whose result is overwritten runs on a scratch tensor, for what it
        draws. Tensors without a call are zero.
        """
        calls = self._calls
        last = {call.target: index for index, call in enumerate(calls)}
        start = {call.target: index for index, call in enumerate(calls) if call.overwrites}
        with self._running():
            for index, call in enumerate(calls):
                target = call.target
                if not target.is_pending or index < start.get(target, 0):
                    call.run(torch.empty(target.shape, dtype=target.tensor.dtype))
                    continue
                target.allocate()
                call.run(target.plain)
                if index == last[target]:
                    yield target
            for lazy in self.tensors:
                if lazy.is_pending and lazy not in last:
                    lazy.allocate()
                    lazy.plain.zero_()
                    yield lazy

    def settle(self) -> None:
        """Do nothing: no step of the user has been called."""

    def fetch(self, name: str, state: str = "model") -> np.ndarray:  # noqa: ARG002
        raise AssertionError(f"a lazy tensor is initialized before it is read: {name}")

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Draw from the recorded states of the generators; restore those that moved on since."""
        before = {generator: generator.get_state() for generator in self._states}
        for generator, state in self._states.items():
            generator.set_state(state)
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False
            for generator, state in self._states.items():
                if not torch.equal(before[generator], state):
                    generator.set_state(before[generator])


@contextmanager
def lazy_creation() -> Iterator[None]:
    """Make floating-point tensors of ``torch.empty`` and ``empty_like`` lazy in the context."""
    record = InitRecord()
    creation = _Creation(record)
    with creation, _RandomOps(record), _deferred_truncation():
        yield
    if record.num_bytes <= STAYS_LAZY_BYTES:
        record.run()
        creation.make_plain(creation.made())
        return
    made = creation.made()
    creation.make_plain([tensor for tensor in made if not is_parameter(tensor)])
    for tensor in made:
        if is_parameter(tensor):
            tensor._remote.tensor = tensor


class _Creation(TorchFunctionMode):
    """A mode in which ``torch.empty`` is lazy, with a record of all aliases of lazy tensors."""

    def __init__(self, record: InitRecord) -> None:
        super().__init__()
        self._record = record
        self._made: list[weakref.ref[RemoteTensor]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is _SET_DATA and isinstance(args[0], RemoteTensor):
            args[0]._remote.tensor = args[0]  # it has a storage of its own now
        is_new = func in (torch.empty, torch.empty_like) and _is_on_cpu(result)
        if is_new and not self._record.is_running:  # recorded calls make tensors of their own
            result = self._record.create(result)
        if isinstance(result, RemoteTensor):
            self._made.append(weakref.ref(result))
        return result

    def made(self) -> list[RemoteTensor]:
        """Return the aliases that still exist."""
        return [tensor for ref in self._made if (tensor := ref()) is not None]

    def make_plain(self, tensors: list[RemoteTensor]) -> None:
        """Initialize tensors and turn them into ordinary ones, in place."""
        for tensor in tensors:
            if type(tensor) is RemoteTensor:  # a tensor that functions returned twice is plain now
                tensor._remote.read()
                del tensor._remote
                plain = nn.Parameter if is_parameter(tensor) else torch.Tensor
                tensor.__class__ = plain  # type: ignore[assignment]


@contextmanager
def _deferred_truncation() -> Iterator[None]:
    """Record ``nn.init.trunc_normal_`` as one call, since it reads what it has drawn."""
    truncate = nn.init._no_grad_trunc_normal_

    @functools.wraps(truncate)
    def defer(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if isinstance(tensor, RemoteTensor) and tensor._remote.defer(
            truncate, (tensor, *args), kwargs
        ):
            return tensor
        return truncate(tensor, *args, **kwargs)

    with mock.patch.object(nn.init, truncate.__name__, defer):
        yield


class _RandomOps(TorchDispatchMode):
    """A mode that runs what is recorded before any other op draws from the generator."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without the guard of torch 2.13 against compilation, which imports Dynamo (2 s)."""
        return False

    def __init__(self, record: InitRecord) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._record.run()
        return func(*args, **(kwargs or {}))


def _is_on_cpu(tensor: torch.Tensor) -> bool:
    """Return whether a new tensor is an ordinary one of floating-point numbers."""
    return (
        type(tensor) is torch.Tensor and tensor.is_floating_point() and tensor.device.type == "cpu"
    )


def _is_in_place(func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Return whether a call changes its first argument only, and reads no other tensor."""
    name = getattr(func, "__name__", "")
    others = pytree.tree_leaves((args[1:], {**kwargs, "generator": None}))
    return (
        name.endswith("_")
        and not name.startswith("__")
        and name != "copy_"
        and not any(isinstance(leaf, (torch.Tensor, torch.Generator)) for leaf in others)
    )
