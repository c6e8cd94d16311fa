"""cbfloat16 in a plain PyTorch loop: tensors that say float16, hold fp32, and round every result.

An op runs twice: on tensors without memory, which shows the types of its results by the rules of
torch, and in fp32. Results that are float16 by those rules are rounded to cbfloat16. This is how
the cluster computes, written another way (``wsc.compiler.lower_cbfloat16`` rewrites graphs).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from wsc.compiler.cbfloat16 import PROXY, rounded

_FAKE = FakeTensorMode(allow_non_fake_inputs=True)  # as in wsc.compiler.capture: types of the CPU
_make: Any = torch.Tensor._make_wrapper_subclass


class Cbfloat16Tensor(torch.Tensor):
    """A tensor of cbfloat16 numbers; ``held`` has them in fp32."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls: type[Cbfloat16Tensor], held: torch.Tensor) -> Cbfloat16Tensor:
        made: Cbfloat16Tensor = _make(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=PROXY
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares it without cls
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _compute(func, args, kwargs or {})


class Cbfloat16Mode(TorchDispatchMode):
    """The context of a step in cbfloat16; it makes such tensors also where none was an operand."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


def to_cbfloat16(x: torch.Tensor) -> torch.Tensor:
    """Return fp32 numbers rounded to cbfloat16."""
    return Cbfloat16Tensor(rounded(x))


def _compute(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an op in fp32, and round those of its results that are float16 by torch's rules."""
    leaves = tree_leaves((args, kwargs))
    if not any(leaf is PROXY or getattr(leaf, "dtype", None) is PROXY for leaf in leaves):
        return func(*args, **kwargs)
    if func._schema.is_mutable:
        raise TypeError(f"{func} writes in place, which this type does not follow")
    held_args, held_kwargs = tree_map(_held, (args, kwargs))
    computed = func(*held_args, **held_kwargs)
    with _FAKE:
        shown_args, shown_kwargs = tree_map_only(torch.Tensor, _shown, (args, kwargs))
        shown = func(*shown_args, **shown_kwargs)
    return tree_map(_result, computed, shown)


def _shown(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _held(value: Any) -> Any:
    if isinstance(value, Cbfloat16Tensor):
        return value.held
    return torch.float32 if value is PROXY else value


def _result(computed: Any, shown: Any) -> Any:
    is_half = isinstance(shown, torch.Tensor) and shown.dtype == PROXY
    return to_cbfloat16(computed) if is_half else computed
