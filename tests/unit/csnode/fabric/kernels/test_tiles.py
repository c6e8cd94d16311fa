"""Tiles of matrices on a grid of PEs."""

from __future__ import annotations

import numpy as np

from csnode.fabric import kernels
from csnode.fabric.region import Fabric
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError


def test_split_refuses_a_matrix_that_does_not_divide() -> None:
    """Every PE must hold a tile of the same size."""
    with raises(ApplianceCompilationError, "matrix-not-divisible"):
        kernels.softmax(Fabric(2, 4), np.ones((4, 6)))
