"""Half types of kernels that hold fp32, in a plain PyTorch loop.

An op runs in fp32 and, the first time, on tensors without memory, which shows the types of its
results by the rules of torch. Results that are of the half type by those rules are rounded. This is
how the cluster computes cbfloat16 and stochastic rounding, written another way
(``waferstream.compiler.lower_half`` rewrites graphs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from waferstream.compiler.lower_half import overload_rounds, overload_states
from waferstream.numerics.half_types import nearest, stochastic
from waferstream.numerics.precision import dtype_in_program

_FAKE = FakeTensorMode(
    allow_non_fake_inputs=True
)  # as in waferstream.compiler.capture: types of the CPU
_make: Any = torch.Tensor._make_wrapper_subclass


class HalfTensor(torch.Tensor):
    """A tensor of numbers of a half type; ``held`` has them in fp32."""

    held: torch.Tensor
    half_type: str

    @staticmethod
    def __new__(cls: type[HalfTensor], held: torch.Tensor, half: str) -> HalfTensor:
        dtype = dtype_in_program(half)
        made: HalfTensor = _make(cls, held.shape, held.stride(), held.storage_offset(), dtype=dtype)
        made.held, made.half_type = held, half
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares it without cls
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        operands = tree_leaves((args, kwargs))
        (half,) = {operand.half_type for operand in operands if isinstance(operand, HalfTensor)}
        return _Rounding(half).compute(func, args, kwargs or {})


class HalfMode(TorchDispatchMode):
    """The context of a step in a half type; it makes such tensors also where none was an operand.

    With a ``key``, that of a micro-batch, results are rounded by chance, else to nearest.
    """

    def __init__(self, half: str, key: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rounding = _Rounding(half, key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._rounding.compute(func, args, kwargs or {})


def to_half(x: torch.Tensor, half: str) -> torch.Tensor:
    """Return fp32 numbers rounded to the nearest of a half type."""
    return HalfTensor(nearest(x, half), half)


class _Rounding:
    """How ops compute a half type."""

    def __init__(self, half: str, key: int | None = None) -> None:
        self._half, self._dtype, self._key = half, dtype_in_program(half), key
        self._count = 0  # results that were rounded by chance

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op in fp32, and round those of its results that have the half type by torch."""
        leaves = tree_leaves((args, kwargs))
        half = self._dtype
        if not any(leaf is half or getattr(leaf, "dtype", None) is half for leaf in leaves):
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            raise TypeError(f"{func} writes in place, which this type does not follow")
        held_args, held_kwargs = tree_map(self._held, (args, kwargs))
        computed = func(*held_args, **held_kwargs)
        types = _result_types(func, args, kwargs)
        return tree_map(lambda value, dtype: self._result(func, value, dtype), computed, types)

    def _held(self, value: Any) -> Any:
        if isinstance(value, HalfTensor):
            return value.held
        return torch.float32 if value is self._dtype else value

    def _result(self, func: Any, computed: Any, dtype: torch.dtype | None) -> Any:
        if dtype != self._dtype:
            return computed
        if not overload_rounds(func):
            return HalfTensor(computed, self._half)
        if self._key is None or overload_states(func):
            return to_half(computed, self._half)
        self._count += 1
        rounded = stochastic(computed, self._half, self._key, self._count - 1)
        return HalfTensor(rounded, self._half)


def _result_types(func: Any, args: Any, kwargs: Any) -> Any:
    """Return the types of an op's results by the rules of torch, None where one is no tensor."""
    outlines = tree_map_only(torch.Tensor, _Outline.of, (args, kwargs))
    key = (func, repr(outlines))
    if key not in _TYPES:
        with _FAKE:
            shown_args, shown_kwargs = tree_map_only(_Outline, _Outline.shown, outlines)
            shown = func(*shown_args, **shown_kwargs)
        _TYPES[key] = tree_map(lambda result: getattr(result, "dtype", None), shown)
    return _TYPES[key]


@dataclass(frozen=True)
class _Outline:
    """What decides the types of results: an operand without its values."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Outline:
        return cls(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def shown(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)


_TYPES: dict[tuple[Any, str], Any] = {}
"""Types of results by op and operands: the micro-batches of a run are alike."""
