"""Programs and values for tests of the wafer simulator."""

from __future__ import annotations

import numpy as np
import torch

from csnode.fabric.dtypes import Array, Dtype, decode, encode
from csnode.fabric.kernels.tiles import Result
from csnode.fabric.memory import SramArray
from csnode.fabric.program import Port, Program
from csnode.fabric.region import Fabric
from waferstream.machine.hardware.fabric import WSE2, FabricSpec

EPSILON = {Dtype.FP32: 2.0**-23, Dtype.FP16: 2.0**-10, Dtype.BF16: 2.0**-7}
"""Relative distance of neighbouring values."""

_RANDOM = np.random.default_rng(5)


def line(
    num_pes: int, length: int = 8, spec: FabricSpec = WSE2, dtype: Dtype = Dtype.FP32
) -> tuple[Program, SramArray]:
    """Build a program on one row with colour 0 from the first PE to the last."""
    program = Program(Fabric(1, num_pes, spec))
    x = program.array("x", length, dtype)
    program.route(0, np.s_[0, 0], Port.RAMP, Port.EAST)
    program.route(0, np.s_[0, 1:-1], Port.WEST, Port.EAST)
    program.route(0, np.s_[0, -1], Port.WEST, Port.RAMP)
    return program, x


def whole_numbers(fabric: Fabric, length: int) -> Array:
    """Return small integers [rows, columns, length], whose sums are exact in every format."""
    random = np.random.default_rng(7)
    return random.integers(-2, 3, size=(fabric.rows, fabric.columns, length))


def normal(dtype: Dtype, *shape: int) -> Array:
    """Return normal values, rounded to the format."""
    return decode(encode(_RANDOM.normal(size=shape), dtype), dtype)


def reference(values: Array) -> torch.Tensor:
    """Return values as a torch tensor in fp64."""
    return torch.from_numpy(np.asarray(values, dtype=np.float64))


def agree(
    result: Result, expected: torch.Tensor, dtype: Dtype, roundings: int, scale: float = 1.0
) -> None:
    """Check agreement within ``roundings`` roundings of a value of this scale."""
    tolerance = roundings * EPSILON[dtype] * scale
    np.testing.assert_allclose(result.values, expected.numpy(), rtol=0, atol=tolerance)
