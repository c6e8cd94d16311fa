"""Fixtures of the front-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import cstorch
from tests.support.programs.cstorch_program import running_backend


@pytest.fixture
def backend() -> Iterator[cstorch.Backend]:
    """A backend of two systems in this process, shut down after the test."""
    with running_backend() as running:
        yield running
