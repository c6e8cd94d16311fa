"""Kernels of the array of PEs, vectorized over all PEs: values in the order of the wafer.

Results are fp32; the caller rounds them to the type of the op. ``csnode.engine.fabric`` runs the
same kernels on the simulator of the fabric, bit for bit alike.

Products are summed along a ring, down a line, and inside a PE. There every product is exact before
it is added to an fp32 sum (``csnode.fabric.dtypes``). Products of 16-bit numbers are exact in fp32,
others in fp64, so no result here depends on whether the host fuses a multiplication with an
addition.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
import torch

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.reduce import fastest_tree
from csnode.fabric.collectives.ring import Ring
from csnode.fabric.collectives.trees import Tree
from csnode.fabric.dtypes import Array
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from waferstream.machine.hardware.fabric import WSE3

_BLOCK_ELEMENTS = 131072
"""Sums that are added to at a time: fewer calls against sums in the cache of a core."""


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


class LocalSums:
    """Sums of products that PEs make of the weights of one output, or of their tokens.

    The operands are [terms, rows] and [terms, columns]; a sum is [columns, rows].
    """

    def __init__(self, rows: torch.Tensor, columns: torch.Tensor) -> None:
        self._is_exact = rows.dtype.itemsize == columns.dtype.itemsize == 2
        self._rows, self._columns = (x.float().contiguous() for x in (rows, columns))
        if not self._is_exact:
            self._wide_rows, self._wide_columns = self._rows.double(), self._columns.double()

    def add_to(self, sums: torch.Tensor, terms: range, part: slice) -> None:
        """Add the products of some terms, summed up first, to ``sums``."""
        first, *others = terms
        local = self._columns[first, part, None] * self._rows[first]
        if others and self._is_exact:
            for term in others:
                local.addcmul_(self._columns[term, part, None], self._rows[term])
        elif others:
            wide = local.double()
            for term in others:
                wide.addcmul_(self._wide_columns[term, part, None], self._wide_rows[term])
                wide.copy_(local.copy_(wide))  # one rounding to fp32 per addition
        sums.add_(local)


@lru_cache(maxsize=64)
def ring_positions(size: int) -> Array:
    """Return the column of each place of a ring of ``size`` PEs (csnode.fabric.collectives)."""
    return Ring(paths.rows(Fabric(1, size, WSE3)), (1, 2, 3, 4)).positions


def ring_product(x: torch.Tensor, weights: torch.Tensor, ring_size: int) -> torch.Tensor:
    """Return ``x @ weights`` in fp32 as streamed weights give it on a row of ``ring_size`` PEs.

    Features lie along the row, as many side by side as the fullest PE has. Each PE adds up its
    products; the sums of an output travel round the ring from the PE behind its keeper to the
    keeper (csnode.fabric.kernels.streaming). Going twice round the ring, a PE adds to a range of
    the outputs each time: those whose sums pass it then.

    Args:
        x: [tokens, inputs].
        weights: [inputs, outputs].
        ring_size: PEs of a row.
    """
    inputs, outputs = weights.shape
    height, width = -(-inputs // ring_size), -(-outputs // ring_size)
    positions = ring_positions(ring_size)
    kept = positions[:, None] * width + np.arange(width)
    keepers, slots = np.nonzero(kept < outputs)
    order = torch.from_numpy(kept[keepers, slots].astype(np.int64))
    local = LocalSums(x.T, weights[:, order])
    sums = torch.zeros(outputs, x.shape[0])
    block = max(1, _BLOCK_ELEMENTS // max(1, x.shape[0]))
    for start in range(0, outputs, block):
        _pass_ring(local, sums, keepers, positions, height, inputs, range(outputs)[start:][:block])
    product = torch.empty_like(sums)
    product[order] = sums
    return product.T


def _pass_ring(
    local: LocalSums,
    sums: torch.Tensor,
    keepers: Array,
    positions: Array,
    height: int,
    inputs: int,
    outputs: range,
) -> None:
    """Add up the sums of a range of outputs around the ring."""
    size, mine = len(positions), keepers[outputs.start : outputs.stop]
    for step in range(int(mine[0]) + 1, int(mine[-1]) + size + 1):
        first = int(positions[step % size]) * height
        terms = range(first, min(first + height, inputs))
        low, high = np.searchsorted(mine, (step - size, step), side="left")
        if terms and low < high:
            part = slice(outputs.start + int(low), outputs.start + int(high))
            local.add_to(sums[part], terms, part)


def line_product(left: torch.Tensor, right: torch.Tensor, height: int) -> torch.Tensor:
    """Return ``left @ right`` in fp32 as a line of PEs gives it that share the inner dimension.

    Each PE adds up the products of its ``height`` terms; a chain adds the sums, from the last PE to
    the first (csnode.fabric.kernels.resident).

    Args:
        left: [rows, inner].
        right: [inner, columns].
        height: Inner terms of a PE.
    """
    inner, columns = right.shape
    local = LocalSums(right, left.T)
    sums = torch.zeros(left.shape[0], columns)
    block = max(1, _BLOCK_ELEMENTS // max(1, columns))
    starts = range(0, inner, height)[::-1]
    for first in range(0, left.shape[0], block):
        part = slice(first, first + block)
        for start in starts:
            local.add_to(sums[part], range(start, min(start + height, inner)), part)
    return sums


def sequential_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``left @ right`` in fp32, the inner terms added one by one in their order.

    Args:
        left: [batch, rows, inner].
        right: [batch, inner, columns].
    """
    is_exact = left.dtype.itemsize == right.dtype.itemsize == 2
    wide = torch.float32 if is_exact else torch.float64
    rows = left.to(wide).movedim(-1, 0).unsqueeze(-1).contiguous()
    columns = right.to(wide).movedim(-2, 0).unsqueeze(-2).contiguous()
    total = torch.zeros(left.shape[0], left.shape[1], right.shape[2], dtype=wide)
    rounded = torch.empty(total.shape)
    for row, column in zip(rows.unbind(), columns.unbind(), strict=True):
        total.addcmul_(row, column)
        if not is_exact:
            total.copy_(rounded.copy_(total))  # one rounding to fp32 per addition
    return total.float()


def tree_sum(parts: torch.Tensor, tree: Tree) -> torch.Tensor:
    """Return the fp32 sum over the first dimension, in the order of a tree over the PEs."""
    sums = list(parts.unbind())
    for position in reversed(range(len(sums))):
        for child in tree.children[position]:
            if child < len(sums):  # PEs beyond the data hold zeros
                sums[position] = sums[position] + sums[child]
    return sums[0]


def local_sums(values: torch.Tensor, pes: int) -> torch.Tensor:
    """Return the fp32 sums of the last dimension that PEs make: [PEs that hold some, ...]."""
    count = values.shape[-1]
    height = -(-count // pes)
    holding = -(-count // height)
    padded = torch.nn.functional.pad(values, (0, holding * height - count))
    tiles = padded.reshape(*values.shape[:-1], holding, height).movedim(-2, 0)
    total = torch.zeros(tiles.shape[:-1], dtype=torch.float32)
    for term in tiles.unbind(-1):
        total = (total + term).float()  # fp64 terms, products, are rounded once
    return total
