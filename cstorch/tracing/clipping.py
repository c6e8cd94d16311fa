"""Torch's clipping functions inside a traced step: calls are recorded, as MemoryX clips."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn

from waferstream.core.errors import ApplianceCompilationError

log = logging.getLogger("waferstream")


class ClipRecorder(Protocol):
    """What hears how gradients are clipped."""

    def clip_norm(self, max_norm: float) -> None:
        """Note that gradients are clipped by their norm."""

    def clip_value(self, max_value: float) -> None:
        """Note that gradients are clipped by their values."""


@contextmanager
def recorded_clipping(model: nn.Module, recorder: ClipRecorder) -> Iterator[None]:
    """Record calls of torch's clipping functions, as MemoryX holds the gradients of ``model``."""

    def clip_norm(
        parameters: Any, max_norm: float, norm_type: float = 2.0, *_: Any, **__: Any
    ) -> None:
        if not _clips(model, parameters):
            return
        if float(norm_type) != 2.0:
            raise ApplianceCompilationError(
                "gradients are clipped by another norm than L2",
                code="clipped-by-other-norm",
                where="clip_grad_norm_",
                value=f"norm_type {norm_type}",
                rule="weight servers agree on the L2 norm only",
            )
        recorder.clip_norm(max_norm)

    def clip_value(parameters: Any, clip_value: float, *_: Any, **__: Any) -> None:
        if not _clips(model, parameters):
            return
        recorder.clip_value(clip_value)

    utils = torch.nn.utils
    with _replaced(utils.clip_grad_norm_, clip_norm), _replaced(utils.clip_grad_value_, clip_value):
        yield


def _clips(model: nn.Module, parameters: Any) -> bool:
    """Return whether all gradients are clipped, or none, as torch does with an empty list.

    Raises:
        ApplianceCompilationError: Fewer are clipped than the model has.
    """
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    trained = sum(p.requires_grad for p in model.parameters())
    if 0 < len(given) < trained:
        raise ApplianceCompilationError(
            "gradients must be clipped all together",
            code="some-gradients-clipped",
            value=f"{len(given)} of {trained}",
            rule="MemoryX clips all gradients of a step together",
            remedy="pass model.parameters()",
        )
    if not given:
        log.warning(
            "A step clips no gradients: it was given no parameters, as a generator has none after "
            "its first use. So does plain PyTorch; keep list(model.parameters()) instead"
        )
    return bool(given)


@contextmanager
def _replaced(function: Any, substitute: Callable[..., None]) -> Iterator[None]:
    """Replace one of torch's clipping functions wherever it was imported to."""
    # What torch exports is a wrapper that switches autograd off; the function itself is the value
    # of the wrapper's only closure cell.
    (cell,) = function.__closure__
    original = cell.cell_contents
    cell.cell_contents = substitute
    try:
        yield
    finally:
        cell.cell_contents = original
