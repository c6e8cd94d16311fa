"""The device of a backend, as ``with backend.device:`` uses it and as it is printed."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

import torch

from cstorch import flags
from cstorch.remote.lazy import lazy_creation


class Device:
    """The context in which models are built (``cstorch.remote.lazy``); prints as its kind."""

    def __init__(self, kind: str, torch_device: torch.device) -> None:
        self.kind = kind
        self.torch_device = torch_device
        self._stack = ExitStack()

    def __enter__(self) -> torch.device:
        self._stack.enter_context(self.torch_device)
        if flags.csx.debug.lazy_initialization:
            self._stack.enter_context(lazy_creation())
        return self.torch_device

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def __str__(self) -> str:
        return self.kind
