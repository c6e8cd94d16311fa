"""Kernels of the array of PEs, vectorized over all PEs: values in the order of the wafer.

Results are fp32; the caller rounds them to the type of the op. ``csnode.engine.fabric`` runs the
same kernels on the simulator of the fabric, bit for bit alike.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
import torch

from csnode.engine.order import (
    line_product,
    local_sums,
    ring_product,
    sequential_product,
    tree_sum,
)
from csnode.fabric.collectives.reduce import fastest_tree
from csnode.fabric.collectives.trees import Tree
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric


class WaferArray:
    """A region of ``rows`` x ``columns`` PEs: tokens down the columns, features along the rows."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns

    def streamed_product(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return x [tokens, inputs] times streamed weights [inputs, outputs]."""
        return ring_product(x, weights, self.columns)

    def token_product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return left [rows, tokens] times right [tokens, columns], summed down the columns."""
        return line_product(left, right, -(-right.shape[0] // self.rows))

    def resident_product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return left [..., rows, inner] times right [..., inner, columns], as SUMMA adds.

        Slices of the inner dimension pass a PE in their order, so it adds them one by one.
        """
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        flat = (x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (left, right))
        product = sequential_product(*flat)
        return product.reshape(*batch, left.shape[-2], right.shape[-1])

    def feature_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum over the last dimension, which lies along a row of PEs."""
        *sums, tokens, _ = (1, 1, *values.shape)[-3:] if values.dim() < 3 else values.shape
        tree = _tree(self.columns, prod(sums) * -(-tokens // self.rows))
        return tree_sum(local_sums(values, self.columns), tree)

    def token_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum over the first dimension of [tokens, features], down the columns."""
        tree = _tree(self.rows, -(-values.shape[1] // self.columns))
        return tree_sum(local_sums(values.T, self.rows), tree)

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``exp(x - max) / sum`` over the last dimension of [tokens, features]."""
        powers = exp(x.float() - x.float().amax(-1, keepdim=True))
        return powers * (1 / self.feature_sum(powers))[..., None]

    def log_softmax(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the softmax over the last dimension of [tokens, features]."""
        shifted = x.float() - x.float().amax(-1, keepdim=True)
        return shifted - log(self.feature_sum(exp(shifted)))[..., None]

    def layer_norm(
        self, x: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return x [tokens, features] normalized, with mean and 1 / deviation of each token."""
        x, share = x.float(), torch.tensor(1 / x.shape[-1])
        # Both sums of a token travel together.
        mean, square = self.feature_sum(torch.stack([x.double(), x.double() * x])) * share
        factor = rsqrt(square - mean * mean + epsilon)
        return _fused(x, factor[:, None], (mean * factor * -1.0)[:, None]), mean, factor

    def rms_norm(self, x: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x [tokens, features] over its root mean square, and the factor of each token."""
        x, share = x.float(), torch.tensor(1 / x.shape[-1])
        square = self.feature_sum(x.double() * x.double()) * share
        factor = rsqrt(square + epsilon)
        return x * factor[:, None], factor


@lru_cache(maxsize=256)
def _tree(pes: int, words: int) -> Tree:
    """Return the tree by which a line of PEs adds ``words`` fp32 sums of each."""
    return fastest_tree(Program(Fabric(1, 1)), pes, max(1, words))


def _fused(x: torch.Tensor, factor: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Return ``x * factor + offset``, rounded once to fp64 and once to fp32, as PEs do."""
    return (x.double() * factor + offset).float()


def exp(x: torch.Tensor) -> torch.Tensor:
    """Return the exponential that PEs compute (``csnode.fabric.simulator.datapath``)."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.exp(x.numpy()))


def log(x: torch.Tensor) -> torch.Tensor:
    """Return the logarithm that PEs compute."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.log(x.numpy()))


def rsqrt(x: torch.Tensor) -> torch.Tensor:
    """Return 1 / root that PEs compute: torch's root is not rounded correctly on every processor.

    The root of a vector in torch 2.13 comes from a library that differs from IEEE 754 in the last
    bit on AMD processors.
    """
    with np.errstate(all="ignore"):
        return torch.from_numpy(1 / np.sqrt(x.numpy()))
