"""Gradients that kernels write into the slabs in which they leave.

Where a product or a sum makes the gradient of a weight, and nothing else reads it, its call is
replaced by one that writes into given memory. So a gradient that leaves without a sum, that of the
only micro-batch of a round, is not copied. The bits are those of the call.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

import torch

from csnode.sparsity.gradients import ATEN, PRODUCT, gradient_calls
from waferstream.core.messages.payload import is_aligned
from waferstream.core.program.segment import Segment

_WRITING: Mapping[str, Callable[..., torch.Tensor]] = MappingProxyType(
    {PRODUCT: torch.mm, f"{ATEN}add.Tensor": torch.add}
)
"""Calls of two tensors, and the functions that write their results."""
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

    def bind(self, kernel: ast.FunctionDef, segment: Segment) -> dict[str, Callable[..., object]]:
        """Bind the calls of a kernel's text that make gradients; return functions by their names.

        Calls are replaced in place.
        """
        bound: dict[str, Callable[..., object]] = {}
        for weight, call, is_turned in gradient_calls(kernel, segment, _WRITING):
            if is_turned or call.keywords or not all(isinstance(a, ast.Name) for a in call.args):
                continue
            function = _WRITING[ast.unparse(call.func)]
            name = f"gradient_place_{len(bound)}"
            call.func = ast.Name(name, ast.Load())
            bound[name] = partial(self._write, weight, function)
            self.weights.add(weight)
        return bound

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
