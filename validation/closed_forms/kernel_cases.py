"""One kernel at a time: the cycles that its closed form gives beside those that the fabric took.

A comparison takes a ``Case``, runs the kernel on the simulated fabric and evaluates the form of
``timing.kernels`` for the same PEs, shapes and format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from csnode.fabric import Dtype, Fabric, kernels, run
from csnode.fabric import collectives as programs
from csnode.fabric.program import Program
from timing.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from timing.kernels import Grid, collectives, resident, streaming, tensors
from validation.published_programs.products import gemv

MACHINES = {"WSE-2": WSE2, "WSE-3": WSE3, "WSE-3 simulator": WSE3_SIMULATOR}
SPARSE = 0.25
"""Share of weights that are not zero in the sparse products."""


@dataclass(frozen=True)
class Case:
    """``rows`` x ``columns`` PEs of a machine, and the tile that each of them holds."""

    machine: str
    dtype: Dtype
    rows: int
    columns: int
    tile: tuple[int, ...]

    @property
    def spec(self) -> FabricSpec:
        """The machine."""
        return MACHINES[self.machine]

    @property
    def fabric(self) -> Fabric:
        """Its PEs to simulate."""
        return Fabric(self.rows, self.columns, self.spec)

    @property
    def grid(self) -> Grid:
        """The same PEs for the closed forms."""
        size = {"rows": self.rows, "columns": self.columns}
        return Grid.whole(self.spec.model_copy(update=size))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns that tiles of the first two lengths make up."""
        return self.rows * self.tile[0], self.columns * self.tile[1]

    @property
    def matrix(self) -> np.ndarray:
        """Random values of this shape."""
        return np.random.default_rng(0).normal(size=self.shape)


class Cycles(NamedTuple):
    """What the closed form gives, and what the fabric took."""

    form: float
    fabric: float


Comparison = Callable[[Case], Cycles]
LineForm = Callable[[FabricSpec, int, float], float]
"""Cycles of a collective, from the machine, its PEs and 32-bit words of each."""
LineProgram = Callable[[Fabric, int, Dtype], Program]
"""A collective on a fabric, from the elements of each PE and their format."""


def _collective(form: LineForm, build: LineProgram) -> Comparison:
    """The tile is one vector per PE; forms of collectives count from the first wavelet."""

    def compare(case: Case) -> Cycles:
        length = case.tile[0] * case.tile[1]
        taken = run(build(case.fabric, length, case.dtype), {"x": 1.0}).cycles
        words = length / case.dtype.per_word
        return Cycles(form(case.spec, case.columns, words), taken - case.spec.vector_setup_cycles)

    return compare


def _reduce(form: LineForm, tree: Callable[[int], programs.Tree]) -> Comparison:
    def build(fabric: Fabric, length: int, dtype: Dtype) -> Program:
        return programs.reduce(fabric, tree(fabric.columns), length, dtype)

    return _collective(form, build)


def _all_reduce_form(spec: FabricSpec, pes: int, words: float) -> float:
    """A chain and a broadcast, which starts with a set-up of its own."""
    way_back = collectives.broadcast(spec, pes, words) + spec.vector_setup_cycles
    return collectives.chain(spec, pes, words) + way_back


def _all_reduce_program(fabric: Fabric, length: int, dtype: Dtype) -> Program:
    return programs.all_reduce(fabric, programs.chain(fabric.columns), length, dtype)


chain = _reduce(collectives.chain, programs.chain)
star = _reduce(collectives.star, programs.star)
tree = _reduce(collectives.binomial, programs.binomial)
two_phase = _reduce(collectives.two_phase, programs.two_phase)
broadcast = _collective(collectives.broadcast, programs.broadcast)
all_reduce = _collective(_all_reduce_form, _all_reduce_program)
ring_all_reduce = _collective(collectives.ring_all_reduce, programs.ring_all_reduce)


def broadcast_2d(case: Case) -> Cycles:
    """Over a square with sides of ``columns`` PEs."""

    def form(spec: FabricSpec, pes: int, words: float) -> float:
        return collectives.broadcast_2d(spec, pes, pes, words)

    square = replace(case, rows=case.columns)
    return _collective(form, programs.broadcast_2d)(square)


def _streamed(density: float) -> Comparison:
    """Weights that are left out lie anywhere (seeded); the form is told the share of the others."""

    def compare(case: Case) -> Cycles:
        x, outputs, dtype = case.matrix, case.tile[2], case.dtype
        weights = np.random.default_rng(1).random((x.shape[1], outputs)) < density
        edge = Fabric(case.rows + 1, case.columns, case.spec)
        taken = kernels.weight_streaming(edge, x, weights.astype(float), dtype).cycles
        share = float(weights.mean())
        form = streaming.weight_streaming(case.grid, *case.shape, outputs, dtype.torch_name, share)
        return Cycles(form.total_cycles, taken)

    return compare


dense_gemm = _streamed(1.0)
sparse_gemm = _streamed(SPARSE)


def weight_gradient(case: Case) -> Cycles:
    """Of a product whose activations lie still; the tile is tokens, features, outputs."""
    x, outputs = case.matrix, case.columns * case.tile[2]
    taken = kernels.weight_gradient(case.fabric, x, np.ones((len(x), outputs)), case.dtype).cycles
    form = resident.weight_gradient(case.grid, *case.shape, outputs, case.dtype.torch_name)
    return Cycles(form.total_cycles, taken)


def matvec(case: Case) -> Cycles:
    """A matrix that lies still and a vector."""
    matrix = case.matrix
    taken = kernels.gemv(case.fabric, matrix, matrix[0], case.dtype).cycles
    form = gemv(case.grid, *case.shape, case.dtype.torch_name)
    return Cycles(form.total_cycles, taken)


def summa(case: Case) -> Cycles:
    """Two matrices that lie still; the tile is rows, inner length, columns."""
    left = case.matrix
    right = np.ones((left.shape[1], case.columns * case.tile[2]))
    taken = kernels.summa(case.fabric, left, right, case.dtype).cycles
    tile = (case.tile[0], case.tile[2])
    pes = (case.rows, case.columns)
    form = resident.summa(case.spec, pes, tile, left.shape[1], case.dtype.torch_name)
    return Cycles(form.total_cycles, taken)


def softmax(case: Case) -> Cycles:
    """Over the columns of a matrix."""
    taken = kernels.softmax(case.fabric, case.matrix, case.dtype).cycles
    form = tensors.softmax(case.grid, case.matrix.shape, case.dtype.torch_name)
    return Cycles(form.total_cycles, taken)


def layer_norm(case: Case) -> Cycles:
    """Over the columns of a matrix."""
    x = case.matrix
    taken = kernels.layer_norm(case.fabric, x, x[0], x[0], case.dtype).cycles
    form = tensors.norm(case.grid, x.shape, case.dtype.torch_name)
    return Cycles(form.total_cycles, taken)


def attention(case: Case) -> Cycles:
    """One head; the tile is queries, features, keys."""
    queries = case.matrix
    keys = np.ones((case.columns * case.tile[2], queries.shape[1]))
    taken = kernels.attention(case.fabric, queries, keys, keys, case.dtype).cycles
    sizes = (len(queries), len(keys), queries.shape[1])
    form = tensors.attention(case.grid, 1, *sizes, case.dtype.torch_name)
    return Cycles(form.total_cycles, taken)


def embedding(case: Case) -> Cycles:
    """As many tokens as the table has rows."""
    table = case.matrix
    tokens = np.zeros(len(table), dtype=int)
    taken = kernels.embedding(case.fabric, table, tokens, case.dtype).cycles
    form = tensors.gather(case.grid, table.shape, case.dtype.torch_name)
    return Cycles(form.total_cycles, taken)


def loss(case: Case) -> Cycles:
    """Cross entropy of scores, the softmax included."""
    scores, dtype = case.matrix, case.dtype.torch_name
    classes = np.zeros(len(scores), dtype=int)
    taken = kernels.cross_entropy(case.fabric, scores, classes, case.dtype).cycles
    softmax_form = tensors.softmax(case.grid, scores.shape, dtype)
    form = softmax_form + tensors.loss(case.grid, scores.shape, dtype)
    return Cycles(form.total_cycles, taken)
