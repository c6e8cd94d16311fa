"""Tensors of the user's process whose values are held by MemoryX.

A parameter of a compiled model keeps its storage in this process, but each training job makes that
storage stale. A ``RemoteParameter`` notices every call of a torch function on it and first brings
its storage up to date:

    read    p.mean(), p[0], p.numpy(), print(p)    fetch the value if it is stale, then call
    alias   p.detach(), p.data, state_dict()       return an alias that behaves in the same way
    write   p.mul_(2), p[0] = 1, p.data = x        like a read; the changed bytes are found before
                                                   the next job and sent to MemoryX
    copy    p.copy_(x), load_state_dict()          no fetch, since every element is overwritten

Changes are found by comparing digests, so that it does not matter how a storage was written. Plain
views (``p[0]``, ``p.numpy()``) are snapshots: they do not follow later steps, and writes through
them count only until the next job begins.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from cstorch.recording.recorder import active_recorder
from waferstream.core.errors import ApplianceCompilationError, ConfigError

_NO_DIGEST = b""
"""Digest of a storage that holds a new value, whatever its bytes are."""

_PROPERTIES = (
    "shape dtype device layout ndim names requires_grad is_leaf grad grad_fn _base _version"
    " _backward_hooks _post_accumulate_grad_hooks is_cpu is_cuda is_meta is_mkldnn is_mps is_nested"
    " is_quantized is_sparse is_sparse_csr is_xpu itemsize nbytes output_nr retains_grad volatile"
)
_METHODS = (
    "size dim ndimension numel nelement stride storage_offset element_size is_floating_point"
    " is_complex is_contiguous is_signed is_inference is_shared get_device requires_grad_"
    " register_hook register_post_accumulate_grad_hook retain_grad __len__ __hash__"
    " is_conj is_neg _is_view"
)


def _metadata() -> frozenset[Any]:
    """Return the torch functions that read no element."""
    found = [getattr(torch.Tensor, name) for name in _METHODS.split()]
    for name in _PROPERTIES.split():
        if (member := getattr(torch.Tensor, name, None)) is not None:
            found += [getattr(member, access, None) for access in ("__get__", "__set__")]
    found += [torch.is_floating_point, torch.is_complex, torch.numel, torch.is_tensor]
    found += [torch._has_compatible_shallow_copy_type]  # of Module.to_empty
    return frozenset(found)


METADATA = _metadata()
_DATA = torch.Tensor.data
_ALIASES = frozenset({torch.Tensor.detach, torch.detach, _DATA.__get__})  # type: ignore[attr-defined]
_OVERWRITES = frozenset({torch.Tensor.copy_, _DATA.__set__})  # type: ignore[attr-defined]


class Holder(Protocol):
    """Where the values of remote tensors are."""

    @property
    def has_ended(self) -> bool:
        """Whether values that were not fetched are gone."""

    def settle(self) -> None:
        """Run the steps that the user has called and that have not run yet."""

    def fetch(self, name: str, state: str = "model") -> np.ndarray:
        """Return the current value of a tensor of one checkpoint state in fp32."""


class Remote:
    """The state of one remote tensor: whether its storage in this process holds its value."""

    def __init__(self, name: str, tensor: torch.Tensor, holder: Holder, *, is_fresh: bool) -> None:
        self.name = name
        self.tensor = tensor
        self.shape = tensor.shape
        self.holder = holder
        self.num_tied = 1
        """The parameters of a program that are this one weight, and that it updates one by one."""
        self._is_fresh = is_fresh
        self._digest: bytes | None = None  # of the storage when it was first handed out

    @property
    def plain(self) -> torch.Tensor:
        """A plain alias of the storage, whether it is stale or not."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.tensor.detach()

    def read(self) -> torch.Tensor:
        """Bring the storage up to date and return a plain alias of it."""
        self.holder.settle()
        self.fetch()
        if self._digest is None:
            self._digest = _digest(self.plain)
        return self.plain

    def fetch(self) -> None:
        """Bring the storage up to date with what the holder has now."""
        if not self._is_fresh:
            fetched = self.holder.fetch(self.name)  # of another process: memory that is read-only
            value = torch.from_numpy(fetched if fetched.flags.writeable else fetched.copy())
            self.allocate()
            with torch._C.DisableTorchFunctionSubclass():
                self.tensor.data.copy_(value)
            self._is_fresh = True

    @property
    def is_lost(self) -> bool:
        """Whether the value ended with its holder."""
        return not self._is_fresh and self.holder.has_ended

    def overwrite(self) -> None:
        """Note that every element is about to be overwritten."""
        self.holder.settle()
        self.allocate()
        self.note_change()

    def allocate(self) -> None:
        """Give the storage its memory if it has none."""
        storage = self.plain.untyped_storage()
        if storage.size() == 0:
            storage.resize_(self.plain.nbytes)

    def defer(self, func: Callable[..., Any], args: Any, kwargs: Any) -> bool:  # noqa: ARG002
        """Return whether a call was recorded for later, instead of being run now."""
        return False

    def note_change(self) -> None:
        """Note that the storage holds a new value, which MemoryX lacks."""
        self._is_fresh, self._digest = True, _NO_DIGEST

    def outdate(self) -> None:
        """Note that MemoryX holds another value from now on."""
        self._is_fresh, self._digest = False, None

    def make_plain(self) -> None:
        """Let the tensor be an ordinary one, with what its storage holds; aliases follow it."""
        self._is_fresh = True
        tensor: Any = self.tensor
        if type(tensor) in (RemoteParameter, RemoteTensor):
            del tensor._remote
            # The object must stay the same, since others refer to it.
            tensor.__class__ = nn.Parameter if is_parameter(tensor) else torch.Tensor

    def take_change(self) -> bool:
        """Return whether the storage was written to since the last call, or since it was read."""
        if self._digest is None:
            return False
        before, self._digest = self._digest, _digest(self.plain)
        return before != self._digest

    def mark(self) -> bytes | None:
        """Return what tells a later write to the storage; None while nobody has read it."""
        return None if self._digest is None else _digest(self.plain)

    def is_written_since(self, mark: bytes | None) -> bool:
        """Return whether the storage was written to after ``mark`` was taken."""
        if self._digest is None:
            return False
        return _digest(self.plain) != (self._digest if mark is None else mark)


class _RemoteFunctions:
    """What remote parameters and their aliases have in common."""

    _remote: Remote

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in METADATA and func not in _ALIASES:
            target, *others = args or (kwargs.pop("tensor", None),)  # torch.nn.init passes names
            args = (target, *others)
            if isinstance(target, _RemoteFunctions) and target._remote.defer(func, args, kwargs):
                return target
            _prepare(func, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        if func in _ALIASES:
            return alias_of(args[0]._remote, result)
        return result

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._plain())

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        value: torch.Tensor = copy.deepcopy(self._plain(), memo)
        memo[id(self)] = value
        return value

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain().__reduce_ex__(protocol)

    def _plain(self) -> torch.Tensor:
        """Return an ordinary tensor or parameter with the current value."""
        value = self._remote.read()
        if is_parameter(self):
            value = nn.Parameter(value, getattr(self, "requires_grad", True))
            own = {name: item for name, item in vars(self).items() if name != "_remote"}
            vars(value).update(own)
        return value


class RemoteTensor(_RemoteFunctions, torch.Tensor):  # type: ignore[misc]
    """An alias of a remote tensor's storage, current whenever it is used."""


class RemoteParameter(_RemoteFunctions, nn.Parameter):  # type: ignore[misc]
    """A parameter whose value MemoryX holds. Copies and pickles are ordinary parameters."""


def is_parameter(tensor: object) -> bool:
    """Return whether a tensor of any class is a parameter."""
    return isinstance(tensor, nn.Parameter)


def alias_of(remote: Remote, plain: torch.Tensor | None = None) -> RemoteTensor:
    """Return a remote tensor without gradient that shares the storage."""
    plain = remote.plain if plain is None else plain
    alias = torch.Tensor._make_subclass(RemoteTensor, plain)
    alias._remote = remote
    return alias


def _prepare(func: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Bring every remote tensor among the arguments up to date."""
    if active_recorder.get() is not None:
        raise ApplianceCompilationError(
            "a weight was used inside a traced step, but not through its module",
            code="weight-not-through-module",
            where=getattr(func, "__name__", str(func)),
            rule="a traced step receives the streamed weights as attributes of the model",
            remedy="look it up in the model inside the step, for example model.layer.weight",
        )
    others = args
    if func == _DATA.__set__:  # type: ignore[attr-defined]
        _refuse_shared(*args)
    if func in _OVERWRITES and isinstance(args[0], (RemoteParameter, RemoteTensor)):
        target, *others = args
        target._remote.overwrite()
    for remote in _remotes((others, kwargs)):
        remote.read()


def _refuse_shared(target: Any, value: Any) -> None:
    """Refuse ``a.data = b.data``, which would give two remote tensors one memory."""
    own, other = getattr(target, "_remote", None), getattr(value, "_remote", None)
    if own is not None and other is not None and own is not other:
        raise ConfigError(
            "a parameter is given the memory of another one after cstorch.compile",
            code="shared-storage",
            where=f"{own.name} and {other.name}",
            rule="MemoryX holds a tensor for each parameter",
            remedy="tie parameters before cstorch.compile, or copy: a.data.copy_(b)",
        )


def _remotes(tree: Any) -> Iterator[Remote]:
    for leaf in pytree.tree_iter(tree):
        if isinstance(leaf, (RemoteParameter, RemoteTensor)):
            yield leaf._remote


def _digest(plain: torch.Tensor) -> bytes:
    flat = plain.contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().data).digest() + str(tuple(plain.shape)).encode()
