"""Rows of a batch that a program takes apart and joins again, kept together.

``torch.cat(list(images))``, where ``list`` takes the images of a batch apart, is the batch with two
dimensions made one. The list has as many parts as a micro-batch has samples, so no recording of it
would serve another size.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

_JOINS = (torch.cat, torch.concat, torch.concatenate)
_TAKES = (torch.unbind, torch.Tensor.unbind)  # as list() does


class KeptRows(TorchFunctionMode):
    """A mode that joins rows without taking them apart."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[int, tuple[torch.Tensor, Sequence[torch.Tensor]]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        if func in _JOINS and (whole := self._whole(*args, **options)) is not None:
            return whole.flatten(0, 1)
        result = func(*args, **options)
        if func in _TAKES and isinstance(args[0], FakeTensor) and args[1:] in ((), (0,)):
            self._parts |= {id(part): (args[0], result) for part in result}
        return result

    def _whole(self, tensors: Any = (), dim: int = 0, **_: Any) -> torch.Tensor | None:
        """Return the tensor whose parts are joined in order along their first dimension."""
        if dim != 0 or not isinstance(tensors, list | tuple) or not tensors:
            return None
        rows, parts = self._parts.get(id(tensors[0]), (None, ()))
        is_whole = len(tensors) == len(parts) and all(map(is_, tensors, parts))
        return rows if is_whole and rows is not None and rows.dim() > 1 else None
