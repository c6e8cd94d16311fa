"""Labels that a mask selects, for the loss of CTC alone.

``labels.masked_select(mask)`` has as many elements as the mask is true, so no trace can have it.
Models of transformers select the labels of all samples and hand them to ``ctc_loss`` with the
counts of each: concatenated targets. Padded ones say the same in a fixed shape, so the selection
waits for the loss, which takes them in that form. Every other use of it is refused.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves

from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.compiler.ops import REMEDIES
from waferstream.core.errors import ApplianceCompilationError


def can_select(labels: Any, mask: Any = None) -> bool:
    """Return whether a selection may be one of labels, with one row per sample."""
    are_tensors = isinstance(labels, torch.Tensor) and isinstance(mask, torch.Tensor)
    if not are_tensors or labels.is_floating_point():
        return False
    return bool(labels.dim() == 2 and labels.shape == mask.shape)


class SelectedLabels(torch.Tensor):
    """The elements of labels at which a mask is true, row after row.

    Args:
        labels: Integers of shape (N, S).
        mask: Booleans of that shape.
    """

    _labels: torch.Tensor
    _mask: torch.Tensor
    _line: str | None

    @staticmethod
    def __new__(
        cls: type[SelectedLabels], labels: torch.Tensor, mask: torch.Tensor
    ) -> SelectedLabels:
        made: SelectedLabels = torch.Tensor._make_wrapper_subclass(cls, (0,), dtype=labels.dtype)
        made._labels, made._mask, made._line = labels, mask, calling_line()
        return made

    def padded(self, lengths: torch.Tensor) -> torch.Tensor:
        """Return the selected labels of each sample, shape (N, S), with 0 behind them.

        A run ends where ``lengths``, shape (N,), are not the numbers of labels selected: the loss
        would give labels of one sample to another.
        """
        torch._check_tensor_all_with(ValueError, self._mask.sum(1) == lengths)
        behind = self._labels.shape[1]
        places = torch.where(self._mask, self._mask.cumsum(1) - 1, behind)
        room = self._labels.new_zeros((self._labels.shape[0], behind + 1))
        return room.scatter(1, places, self._labels)[:, :behind]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> NoReturn:
        selected = next(x for x in tree_leaves((args, kwargs)) if isinstance(x, cls))
        raise ApplianceCompilationError(
            "op aten.masked_select depends on the values of a tensor",
            code="op-depends-on-values",
            where=selected._line,
            value=f"read by {getattr(func, '__name__', func)}",
            rule="what a mask selects has no fixed shape; only ctc_loss takes labels so",
            remedy=REMEDIES["masked_select"],
        )

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # called with all of them
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        cls.__torch_function__(func, types, args, kwargs)
