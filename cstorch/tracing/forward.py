"""The forward pass of a step, as a part that need not run where its program is in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Forward:
    """A function from a batch to the loss, which records nothing but ops on tensors.

    Everything else that a step leaves behind (clipping, optimizer, schedulers, loss scale) must be
    outside of it, since that runs in every process.

    Args:
        function: The function.
        identity: A text that is equal where ``function`` has the same code and settings; None if
            that cannot be known.
    """

    def __init__(self, function: Callable[[Any], torch.Tensor], identity: str | None) -> None:
        self._function = function
        self.identity = identity
        self._is_skipped = False

    def __call__(self, batch: Any) -> torch.Tensor:
        """Return the loss of a batch; any scalar while the forward pass is skipped."""
        if self._is_skipped:
            return torch.zeros((), requires_grad=True)
        return self._function(batch)

    @contextmanager
    def skipped(self) -> Iterator[None]:
        """Skip the forward pass inside the block."""
        self._is_skipped = True
        try:
            yield
        finally:
            self._is_skipped = False
