"""Settings of the vendor's serializers that programs change; files are read and written alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cache_deferred_tensors(value: bool = True) -> Iterator[None]:  # noqa: ARG001
    """Do nothing: tensors of a checkpoint are read at each access and kept by nobody."""
    yield


@contextmanager
def use_external_link(value: bool = True) -> Iterator[None]:  # noqa: ARG001
    """Do nothing: a checkpoint holds its tensors itself, and never links to another file."""
    yield
