"""The kinds of device that a backend can have."""

from __future__ import annotations

from enum import StrEnum

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
