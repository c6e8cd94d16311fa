"""Client of the vendor's monitoring: accepts metrics without effect."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any


class TelemetryClient:
    """A sink of metrics. The emulated cluster has no management node that would keep them."""

    def __init__(
        self,
        client: Any = None,
        max_buffer_size: int = 128,
        max_buffer_seconds: float = 150,
    ) -> None:
        self.client = client
        self.max_buffer_size = max_buffer_size
        self.max_buffer_seconds = max_buffer_seconds

    def push(self, metrics: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> None:
        """Drop metrics."""

    def __enter__(self) -> TelemetryClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing."""
