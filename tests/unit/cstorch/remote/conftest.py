"""Fixtures of the tests of remote weights."""

from __future__ import annotations

import pytest

import cstorch
from tests.support.programs.cstorch_program import executor, losses, training_step
from tests.support.roles.local_machine import Regression
from tests.support.roles.remote_weights import regression_of


@pytest.fixture
def trained(backend: cstorch.Backend) -> Regression:
    """A model after two steps."""
    losses(training_step(backend), executor(2))
    return regression_of(backend)
