"""The kinds of device that a backend can have, and its device as a program uses and prints it."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from types import TracebackType

import torch

from cstorch import flags
from cstorch.remote.lazy import lazy_creation
from waferstream.core.errors import ConfigError


class BackendType(StrEnum):
    """A kind of device."""

    CPU = "CPU"
    GPU = "GPU"
    CSX = "CSX"

    @classmethod
    def from_str(cls, name: str) -> BackendType:
        """Return the kind of that name, in any case.

        Raises:
            ConfigError: There is no such kind.
        """
        try:
            return cls(name.upper())
        except ValueError as error:
            raise ConfigError(
                "backend_type must be a known kind of device",
                code="unknown-backend-type",
                value=name,
                rule=f"one of {', '.join(cls)}",
            ) from error

    @property
    def is_cpu(self) -> bool:
        return self is BackendType.CPU

    @property
    def is_gpu(self) -> bool:
        return self is BackendType.GPU

    @property
    def is_csx(self) -> bool:
        return self is BackendType.CSX


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
