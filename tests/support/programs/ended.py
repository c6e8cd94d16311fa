"""A backend that a test leaves to the program which it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cstorch


@contextmanager
def ended_backend() -> Iterator[None]:
    """End the backend that the block has made, and reset the flags."""
    try:
        yield
    finally:
        backend = cstorch.current_backend(raise_exception=False)
        if backend is not None:
            backend.shutdown()
        cstorch.backends.reset()
