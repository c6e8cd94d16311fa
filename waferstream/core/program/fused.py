"""Fused kernels: the text of a kernel whose elementwise ops and sums are loops in C++.

Products, attention, random numbers and all that the compiler leaves alone are calls of torch, as in
the kernel that it was made of (waferstream.compiler.fusion). The loops lie in a shared object that
depends on the processor for which it was built.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch

from waferstream.core.program.kernel_source import KernelSource

EMPTY = "empty_strided_cpu"
"""The function of the text that allocates: shape, strides, dtype."""

VIEW = "reinterpret_tensor"
"""The function of the text that makes views: tensor, shape, strides, offset."""

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
"""The functions of torch that the text calls by ``extern_kernels``; they write into ``out``."""


_CONSTANT = re.compile(r"\bself\.(\w+)")


@dataclass(frozen=True)
class FusedKernel:
    """A kernel with the arguments and results of the one that it was made of.

    ``text`` defines ``forward``, which takes the constants behind the operands, in the order in
    which that one reads them. ``loops`` are the functions of the shared object, with the number of
    their tensors, ``processor`` what it runs on (waferstream.compiler.fusion.shared_object).
    """

    text: str
    loops: tuple[tuple[str, int], ...]
    shared_object: bytes
    processor: str

    def build(
        self,
        kernel: KernelSource,
        functions: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
        text: str = "",
    ) -> Callable[..., tuple[Any, ...]]:
        """Return the kernel as a callable on the segment's weights and inputs.

        Args:
            kernel: The one that it was made of.
            functions: Further globals of the text.
            text: An edited text instead of its own.
        """
        library = _loaded(self.shared_object)
        loops = {name: _loop(library, name, count) for name, count in self.loops}
        source = replace(kernel, text=text or self.text, constants={})
        forward = source.build({**_FUNCTIONS, **loops, **functions})
        constants = [kernel.constants[name] for name in constants_read(kernel.text)]
        if not constants:
            return forward
        return lambda *operands: forward(*operands, *constants)


def constants_read(text: str) -> list[str]:
    """Return the names of the constants of a kernel's text, in the order in which it reads them."""
    return list(dict.fromkeys(_CONSTANT.findall(text)))


@functools.lru_cache(maxsize=1024)
def _loaded(shared_object: bytes) -> ctypes.CDLL:
    """Return a shared object as a library of this process.

    It is loaded from memory: a file could be changed, or lie where nothing may be executed. Its
    descriptor stays open, since the loader tells libraries by their names, and those would come
    again.
    """
    name = hashlib.sha256(shared_object).hexdigest()[:16]
    descriptor = os.memfd_create(f"waferstream-{name}", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(shared_object)
    return ctypes.CDLL(f"/proc/self/fd/{descriptor}")


def _loop(library: ctypes.CDLL, name: str, count: int) -> Callable[..., None]:
    """Return a loop as a function of tensors; other threads run meanwhile."""
    function = library[name]
    function.argtypes, function.restype = (ctypes.c_void_p,) * count, None

    def run(*tensors: torch.Tensor) -> None:
        function(*[tensor.data_ptr() for tensor in tensors])

    return run


_GUARDS: Any = torch._C._dynamo.guards

allocate: Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]
allocate = _GUARDS._empty_strided_cpu
"""Return a tensor with contents undefined: shape, strides, dtype."""

_FUNCTIONS: Mapping[str, Any] = {
    EMPTY: allocate,
    VIEW: _GUARDS._reinterpret_tensor,
    "assert_size_stride": _GUARDS.assert_size_stride,
    "extern_kernels": SimpleNamespace(**{name: getattr(torch, name) for name in PRODUCTS}),
}
"""Globals of every text, as inductor's wrappers have them."""
