"""Where the gradients of weights are written: into the slabs in which they leave.

Where a product or a sum makes the gradient of a weight, and nothing else reads it, its call is
replaced by one that writes into given memory; in a fused kernel, the call that allocates. So a
gradient that leaves without a sum, that of the only micro-batch of a round, is not copied. The bits
are those of the call.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import torch

from csnode.sparsity.gradients import ATEN, PRODUCT, gradient_calls
from waferstream.core.messages.payload import is_aligned
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.segment import Segment

Allocate = Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]

_WRITING: Mapping[str, Callable[..., torch.Tensor]] = MappingProxyType(
    {PRODUCT: torch.mm, f"{ATEN}add.Tensor": torch.add}
)
"""Calls of two tensors, and the functions that write their results."""

_Writing = tuple[str, Callable[..., torch.Tensor]]
"""The weight whose gradient a call makes, and the function that writes it."""

_NOWHERE: Mapping[str, torch.Tensor] = MappingProxyType({})


class GradientPlaces(threading.local):
    """Where the kernel that a thread runs writes gradients, by weight.

    ``weights``, for all threads, are those whose gradients kernels write.
    """

    def __init__(self, weights: set[str]) -> None:
        self.weights = weights
        self._places = _NOWHERE

    @contextmanager
    def at(self, places: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Let the kernels that this thread runs in the block write into these tensors."""
        self._places = places
        try:
            yield
        finally:
            self._places = _NOWHERE

    def built(self, kernel: KernelSource, segment: Segment) -> Callable[..., tuple[Any, ...]]:
        """Return a kernel as a callable whose calls that make gradients write where they belong."""
        if not segment.gradients:
            return kernel.build()
        text, calls = _with_places(kernel.text, segment)
        self.weights.update(weight for weight, _ in calls.values())
        bound = {name: partial(self._write, *call) for name, call in calls.items()}
        return replace(kernel, text=text).build(bound)

    def _write(
        self,
        weight: str,
        function: Callable[..., torch.Tensor],
        left: torch.Tensor,
        right: torch.Tensor,
    ) -> torch.Tensor:
        """Return ``function(left, right)``, in the weight's place if that changes no bit.

        It must have the same type, and be aligned as other results are.
        """
        place = self._places.get(weight)
        if place is None or not left.dtype == right.dtype == place.dtype or not is_aligned(place):
            return function(left, right)
        return function(left, right, out=place)

    def allocating(self, weight: str, allocate: Allocate) -> Allocate:
        """Return a function that allocates the gradient of a weight: in its place, if it may."""
        self.weights.add(weight)
        return partial(self._allocate, weight, allocate)

    def _allocate(
        self,
        weight: str,
        allocate: Allocate,
        shape: Sequence[int],
        strides: Sequence[int],
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """Return the weight's place as a tensor of this form, or memory of its own."""
        place = self._places.get(weight)
        if place is None or place.dtype != dtype or not is_aligned(place):
            return allocate(shape, strides, dtype)
        return place.as_strided(shape, strides)


@lru_cache(maxsize=256)
def _with_places(text: str, segment: Segment) -> tuple[str, Mapping[str, _Writing]]:
    """Return a kernel's text in which calls that make gradients are bound to other names.

    The names come with the weight and the function of each. All systems of a process bind the same
    kernels.
    """
    tree = ast.parse(text)
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    calls: dict[str, _Writing] = {}
    for weight, call, is_turned in gradient_calls(function, segment, _WRITING):
        if is_turned or call.keywords or not all(isinstance(a, ast.Name) for a in call.args):
            continue
        name = f"gradient_place_{len(calls)}"
        calls[name] = weight, _WRITING[ast.unparse(call.func)]
        call.func = ast.Name(name, ast.Load())
    return ast.unparse(ast.fix_missing_locations(tree)), calls
