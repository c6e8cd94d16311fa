"""Torch's clipping functions inside a traced step: calls are recorded, as MemoryX clips."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn

from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.core.errors import ApplianceCompilationError

log = logging.getLogger("waferstream")


class ClipRecorder(Protocol):
    """What hears how gradients are clipped."""

    def clip_norm(self, max_norm: float) -> torch.Tensor | None:
        """Note that gradients are clipped by their norm; return that norm if it will be known."""

    def clip_value(self, max_value: float) -> None:
        """Note that gradients are clipped by their values."""


@contextmanager
def recorded_clipping(model: nn.Module, recorder: ClipRecorder) -> Iterator[None]:
    """Record calls of torch's clipping functions, as MemoryX holds the gradients of ``model``."""

    masters = list(model.parameters())  # while the step is recorded, the model has others

    def clip_norm(
        parameters: Any, max_norm: float, norm_type: float = 2.0, *args: Any, **kwargs: Any
    ) -> Any:
        given = _listed(parameters)
        if not _clips(model, masters, given):
            return plain_norm(given, max_norm, norm_type, *args, **kwargs)
        if float(norm_type) != 2.0:
            raise ApplianceCompilationError(
                "gradients are clipped by another norm than L2",
                code="clipped-by-other-norm",
                where=calling_line(),
                value=f"norm_type {norm_type}",
                rule="weight servers agree on the L2 norm only",
                remedy="leave norm_type out, or clip by value (clip_grad_value_)",
            )
        return recorder.clip_norm(max_norm)

    def clip_value(parameters: Any, clip_value: float, *args: Any, **kwargs: Any) -> None:
        given = _listed(parameters)
        if _clips(model, masters, given):
            recorder.clip_value(clip_value)
        else:
            plain_value(given, clip_value, *args, **kwargs)

    utils = torch.nn.utils
    with (
        _replaced(utils.clip_grad_norm_, clip_norm) as plain_norm,
        _replaced(utils.clip_grad_value_, clip_value) as plain_value,
    ):
        yield


def _listed(parameters: Any) -> list[torch.Tensor]:
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def _clips(model: nn.Module, masters: list[nn.Parameter], given: list[torch.Tensor]) -> bool:
    """Return whether all gradients of a model are clipped, or none: those of another model.

    Args:
        model: The model, maybe with streamed weights.
        masters: Its own parameters, in the same order.
        given: The parameters whose gradients are clipped.

    Raises:
        ApplianceCompilationError: Fewer are clipped than the model has, or others beside them.
    """
    if not given:
        log.warning(
            "A step clips no gradients: it was given no parameters, as a generator has none after "
            "its first use. So does plain PyTorch; keep list(model.parameters()) instead"
        )
    named = {id(each) for each in given}
    streamed = list(model.parameters())
    own = {id(each) for each in [*masters, *streamed]}
    if named.isdisjoint(own):
        return False
    pairs = list(zip(masters, streamed, strict=True))
    trained = [{id(master), id(now)} for master, now in pairs if master.requires_grad]
    clipped = sum(not named.isdisjoint(each) for each in trained)
    if clipped < len(trained) or not named <= own:
        raise ApplianceCompilationError(
            "gradients must be clipped all together",
            code="some-gradients-clipped",
            where=calling_line(),
            value=f"{clipped} of {len(trained)}, and {len(named - own)} of other models",
            rule="MemoryX clips all gradients of a step together",
            remedy="pass model.parameters() alone; clip those of another model in another call",
        )
    return True


@contextmanager
def _replaced(function: Any, substitute: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Replace one of torch's clipping functions wherever it was imported to; yield what it was."""
    # What torch exports is a wrapper that switches autograd off; the function itself is the value
    # of the wrapper's only closure cell.
    (cell,) = function.__closure__
    original = cell.cell_contents
    cell.cell_contents = substitute
    try:
        yield original
    finally:
        cell.cell_contents = original
