"""Hooks of a user's program on tensors: of the traced model, and of results that come back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from cstorch.hooks import registered

Hook = Callable[[torch.Tensor, str], None]
"""A function of a tensor and its name."""

Names = Callable[[str], Iterable[str]]
"""The names under which hooks get a tensor, by its own name."""

Outline = tuple[str, Sequence[int], str]
"""Name, shape and dtype of a tensor."""


class Hooks:
    """Registered hooks, called in the order of their registration."""

    def __init__(self) -> None:
        self._hooks: OrderedDict[int, Hook] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    @property
    def read_outlines_only(self) -> bool:
        """Whether all hooks read names, shapes and dtypes alone, as they state themselves."""
        return all(map(_reads_outlines_only, self._hooks.values()))

    @contextmanager
    def without_readers_of_outlines(self) -> Iterator[None]:
        """Call only the hooks that may compute something of a tensor, inside the block."""
        every = self._hooks
        kept = ((id, hook) for id, hook in every.items() if not _reads_outlines_only(hook))
        self._hooks = OrderedDict(kept)
        try:
            yield
        finally:
            self._hooks = every

    def register(self, hook: Hook) -> RemovableHandle:
        """Add a hook; return a handle whose ``remove()`` takes it away."""
        return registered(self._hooks, hook)

    def __call__(self, tensor: torch.Tensor, name: str) -> None:
        for hook in list(self._hooks.values()):
            hook(tensor, name)


def _reads_outlines_only(hook: Hook) -> bool:
    return getattr(hook, "reads_outlines_only", False)


after_transfer = Hooks()
"""Hooks on results of a step that come back to the host, before its closures run."""

while_traced = Hooks()
"""Hooks on tensors that a module returns while the step is traced."""


_samples: ContextVar[int] = ContextVar("samples")
_rows: ContextVar[dict[str, bool] | None] = ContextVar("rows", default=None)


def has_rows(tensor: torch.Tensor, name: str) -> bool:
    """Return whether a tensor has a row for each sample of the step that runs now.

    An extent of one does not tell where a step is recorded again for one sample: then it is what
    the first recording has found for the tensor of this name.
    """
    found = tensor.ndim > 0 and bool(tensor.shape[0] == _samples.get())
    rows = _rows.get()
    return found if rows is None else rows.setdefault(name, found)


@contextmanager
def noted_rows(rows: dict[str, bool]) -> Iterator[None]:
    """Note in ``rows`` what ``has_rows`` finds first for each name, inside the block."""
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


def note_samples(count: int) -> None:
    """Note the samples of the batch, or micro-batch, of the step that begins."""
    _samples.set(count)


def register_traced_tensor_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(tensor, name)`` for what every module returns while a step is traced.

    The name is the path of the module in the model, followed by ``fwd`` and, where a module returns
    several tensors or runs several times, by a number. What the hook computes from the tensor
    becomes part of the step; a closure that it calls receives the value.
    """
    return while_traced.register(hook)


def itself(name: str) -> tuple[str]:
    """Return the only name under which hooks get a tensor: its own."""
    return (name,)


@contextmanager
def traced_tensors(model: nn.Module, names: Names = itself) -> Iterator[None]:
    """Call the hooks in ``while_traced`` for what the modules of ``model`` return.

    ``names`` gives the names under which hooks get a tensor, by its own.
    """
    if not while_traced:
        yield
        return
    paths = {module: path for path, module in model.named_modules() if path}
    count: dict[str, int] = {}

    def visit(module: nn.Module, _args: object, output: Any) -> None:
        for leaf in pytree.tree_iter(output):
            if module in paths and isinstance(leaf, torch.Tensor):
                name = f"{paths[module]}.fwd"
                count[name] = count.get(name, -1) + 1
                for each in names(f"{name}.{count[name]}" if count[name] else name):
                    while_traced(leaf, each)

    handle = nn_module.register_module_forward_hook(visit)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def noted_outlines() -> Iterator[list[Outline]]:
    """Yield a list of name, shape and dtype of the tensors that hooks get inside the block."""
    noted: list[Outline] = []

    def note(tensor: torch.Tensor, name: str) -> None:
        # The samples of a micro-batch may be a symbol, whose hint decides nothing.
        extents: Sequence[int | torch.SymInt] = tensor.shape
        shape = [e.node.hint if isinstance(e, torch.SymInt) else e for e in extents]
        noted.append((name, shape, str(tensor.dtype).removeprefix("torch.")))

    note.reads_outlines_only = True  # type: ignore[attr-defined]
    handle = while_traced.register(note) if while_traced else None
    try:
        yield noted
    finally:
        if handle is not None:
            handle.remove()


def call_with_outlines(outlines: Sequence[Outline]) -> None:
    """Call the hooks in ``while_traced`` for tensors without values."""
    for name, shape, dtype in outlines:
        while_traced(torch.empty(shape, dtype=getattr(torch, dtype), device="meta"), name)
