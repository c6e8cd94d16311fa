"""Refuse what a traced step does on the host: values that it reads, random numbers that it draws.

A traced step computes nothing, so its tensors have no values: ``print(x)`` would show a shape, and
``x.cpu()`` would record nothing. ``item()``, ``bool()`` and the like fail by themselves in
``capture_errors``, since they ask the tracer for a value.

Where Python runs once for all steps, every step would compute with the random numbers of the trace.
Those that torch draws are recorded as ops, and keyed by seed, step and micro-batch
(``keyed_random``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.core.errors import ApplianceCompilationError

_READS: Mapping[Any, str] = {
    torch.Tensor.cpu: "cpu()",
    torch.Tensor.numpy: "numpy()",
    torch.Tensor.__array__: "numpy.asarray()",
    torch.Tensor.__repr__: "print()",
    torch.Tensor.__format__: "a format string",
}
"""Functions that read a tensor on the host, as the user calls them."""


_NUMBERS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("item", "tolist", "__float__", "__int__", "__bool__", "__index__")
)


class RefuseHostReads(TorchFunctionMode):
    """A mode that refuses calls that read the value of a traced tensor.

    Buffers have values, which may be read as long as no step writes them.
    """

    def __init__(self, buffers: TracedBuffers) -> None:
        super().__init__()
        self._buffers = buffers

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _READS and any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(args)):
            raise ApplianceCompilationError(
                f"{_READS[func]} reads a tensor inside the traced step",
                code="tensor-read-in-trace",
                where=calling_line(),
                rule="tensors have values only after the step has run",
                remedy="return the tensor from the step and read it in a cstorch.step_closure",
            )
        if func in _READS or func in _NUMBERS:
            self._buffers.note_host_read(tree_leaves(args))
        return func(*args, **kwargs or {})


@contextmanager
def refuse_host_draws() -> Iterator[None]:
    """Raise ApplianceCompilationError if Python's or NumPy's global generator has moved."""
    before = _states()
    yield
    moved = [name for name, state in _states().items() if state != before[name]]
    if moved:
        raise ApplianceCompilationError(
            "the traced step draws random numbers on the host",
            code="host-random-in-step",
            value=" and ".join(moved),
            rule="Python runs once per trace, so every step would get the same numbers",
            remedy="draw with torch (torch.rand, torch.bernoulli), or in the input function; a "
            "model of transformers may have an option (apply_spec_augment=False)",
        )


def _states() -> dict[str, Any]:
    """Return the state of each global generator, by the name of its module."""
    _, keys, *rest = np.random.get_state()
    return {"random": random.getstate(), "numpy.random": (np.asarray(keys).tobytes(), *rest)}
