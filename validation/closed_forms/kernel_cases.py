"""Cycles of one kernel by its closed form, and on the simulated fabric.

A comparison takes a ``Case``, runs the kernel on the simulated fabric, and evaluates the closed
form of ``waferstream.machine.kernels`` for the same PEs, shapes and dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from csnode.fabric import kernels
from csnode.fabric.collectives import programs, trees
from csnode.fabric.dtypes import Dtype
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from validation.published_programs.products import gemv
from waferstream.machine.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from waferstream.machine.kernels import Grid, collectives, masked, resident, streaming, tensors

MACHINES = {"WSE-2": WSE2, "WSE-3": WSE3, "WSE-3 simulator": WSE3_SIMULATOR}
SPARSE = 0.25
"""Share of non-zero weights in the sparse products."""


LineCost = Callable[[FabricSpec, int, float], float]
"""Closed form of a collective: machine, PEs and 32-bit words per PE to cycles."""
LineProgram = Callable[[Fabric, int, Dtype], Program]
"""Program of a collective: fabric, elements per PE and their dtype to a program."""


@dataclass(frozen=True)
class Case:
    """A grid of ``rows`` x ``columns`` PEs of a machine, and the tile on each of them."""

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
        """The PEs to simulate."""
        return Fabric(self.rows, self.columns, self.spec)

    @property
    def grid(self) -> Grid:
        """The same PEs for the closed forms."""
        size = {"rows": self.rows, "columns": self.columns}
        return Grid.whole(self.spec.model_copy(update=size))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix whose tiles have the first two lengths of ``tile``."""
        return self.rows * self.tile[0], self.columns * self.tile[1]

    @property
    def matrix(self) -> np.ndarray:
        """Random values of this shape, seeded."""
        return np.random.default_rng(0).normal(size=self.shape)


class CyclePair(NamedTuple):
    """Cycles of a kernel by its closed form, and on the simulated fabric."""

    closed_form: float
    simulated: float


Comparison = Callable[[Case], CyclePair]


def _collective(closed_form: LineCost, build: LineProgram) -> Comparison:
    """Return the comparison of a collective; the tile is one vector per PE.

    Closed forms of collectives count from the first wavelet, so the first set-up is subtracted.
    """

    def compare(case: Case) -> CyclePair:
        length = case.tile[0] * case.tile[1]
        simulated = run(build(case.fabric, length, case.dtype), {"x": 1.0}).cycles
        words = length / case.dtype.per_word
        return CyclePair(
            closed_form(case.spec, case.columns, words), simulated - case.spec.vector_setup_cycles
        )

    return compare


def _reduce(closed_form: LineCost, tree: Callable[[int], trees.Tree]) -> Comparison:
    def build(fabric: Fabric, length: int, dtype: Dtype) -> Program:
        return programs.reduce(fabric, tree(fabric.columns), length, dtype)

    return _collective(closed_form, build)


def _all_reduce_cycles(spec: FabricSpec, pes: int, words: float) -> float:
    """Return the cycles of a chain and a broadcast, which starts with a set-up of its own."""
    way_back = collectives.broadcast(spec, pes, words) + spec.vector_setup_cycles
    return collectives.chain(spec, pes, words) + way_back


def _all_reduce_program(fabric: Fabric, length: int, dtype: Dtype) -> Program:
    return programs.all_reduce(fabric, trees.chain(fabric.columns), length, dtype)


chain = _reduce(collectives.chain, trees.chain)
star = _reduce(collectives.star, trees.star)
tree = _reduce(collectives.binomial, trees.binomial)
two_phase = _reduce(collectives.two_phase, trees.two_phase)
broadcast = _collective(collectives.broadcast, programs.broadcast)
all_reduce = _collective(_all_reduce_cycles, _all_reduce_program)
ring_all_reduce = _collective(collectives.ring_all_reduce, programs.ring_all_reduce)


def broadcast_2d(case: Case) -> CyclePair:
    """Compare a broadcast over a square with sides of ``columns`` PEs."""

    def closed_form(spec: FabricSpec, pes: int, words: float) -> float:
        return collectives.broadcast_2d(spec, pes, pes, words)

    square = replace(case, rows=case.columns)
    return _collective(closed_form, programs.broadcast_2d)(square)


def _streamed(density: float) -> Comparison:
    """Return the comparison of a streamed product whose zeros lie at random places (seeded).

    The closed form takes the share of non-zero weights.
    """

    def compare(case: Case) -> CyclePair:
        x, outputs, dtype = case.matrix, case.tile[2], case.dtype
        weights = np.random.default_rng(1).random((x.shape[1], outputs)) < density
        edge = Fabric(case.rows + 1, case.columns, case.spec)
        simulated = kernels.weight_streaming(edge, x, weights.astype(float), dtype).cycles
        share = float(weights.mean())
        closed_form = streaming.weight_streaming(
            case.grid, *case.shape, outputs, dtype.torch_name, share
        )
        return CyclePair(closed_form.total_cycles, simulated)

    return compare


dense_gemm = _streamed(1.0)
sparse_gemm = _streamed(SPARSE)


def weight_gradient(case: Case) -> CyclePair:
    """Compare a weight gradient; the tile is tokens, features, outputs."""
    x, outputs = case.matrix, case.columns * case.tile[2]
    simulated = kernels.weight_gradient(
        case.fabric, x, np.ones((len(x), outputs)), case.dtype
    ).cycles
    closed_form = resident.weight_gradient(case.grid, *case.shape, outputs, case.dtype.torch_name)
    return CyclePair(closed_form.total_cycles, simulated)


def masked_weight_gradient(case: Case) -> CyclePair:
    """Compare the gradient of a sparse weight; the tile is tokens, outputs, inputs."""
    dy, inputs, dtype = case.matrix, case.columns * case.tile[2], case.dtype
    mask = np.random.default_rng(1).random((dy.shape[1], inputs)) < SPARSE
    edge = Fabric(case.rows + 1, case.columns, case.spec)
    x = np.ones((len(dy), inputs))
    simulated = kernels.masked_weight_gradient(edge, dy, x, mask, dtype).cycles
    closed_form = masked.masked_weight_gradient(
        case.grid, *case.shape, inputs, dtype.torch_name, float(mask.mean())
    )
    return CyclePair(closed_form.total_cycles, simulated)


def matvec(case: Case) -> CyclePair:
    """Compare a product of a resident matrix and a vector."""
    matrix = case.matrix
    simulated = kernels.gemv(case.fabric, matrix, matrix[0], case.dtype).cycles
    closed_form = gemv(case.grid, *case.shape, case.dtype.torch_name)
    return CyclePair(closed_form.total_cycles, simulated)


def summa(case: Case) -> CyclePair:
    """Compare a product of two resident matrices; the tile is rows, inner length, columns."""
    left = case.matrix
    right = np.ones((left.shape[1], case.columns * case.tile[2]))
    simulated = kernels.summa(case.fabric, left, right, case.dtype).cycles
    tile = (case.tile[0], case.tile[2])
    pes = (case.rows, case.columns)
    closed_form = resident.summa(case.spec, pes, tile, left.shape[1], case.dtype.torch_name)
    return CyclePair(closed_form.total_cycles, simulated)


def softmax(case: Case) -> CyclePair:
    """Compare a softmax over the columns of a matrix."""
    simulated = kernels.softmax(case.fabric, case.matrix, case.dtype).cycles
    closed_form = tensors.softmax(case.grid, case.matrix.shape, case.dtype.torch_name)
    return CyclePair(closed_form.total_cycles, simulated)


def layer_norm(case: Case) -> CyclePair:
    """Compare a layer norm over the columns of a matrix."""
    x = case.matrix
    simulated = kernels.layer_norm(case.fabric, x, x[0], x[0], case.dtype).cycles
    closed_form = tensors.norm(case.grid, x.shape, case.dtype.torch_name)
    return CyclePair(closed_form.total_cycles, simulated)


def attention(case: Case) -> CyclePair:
    """Compare attention of one head; the tile is queries, features, keys."""
    queries = case.matrix
    keys = np.ones((case.columns * case.tile[2], queries.shape[1]))
    simulated = kernels.attention(case.fabric, queries, keys, keys, case.dtype).cycles
    sizes = (len(queries), len(keys), queries.shape[1])
    closed_form = tensors.attention(case.grid, 1, *sizes, case.dtype.torch_name)
    return CyclePair(closed_form.total_cycles, simulated)


def embedding(case: Case) -> CyclePair:
    """Compare an embedding lookup of as many tokens as the table has rows."""
    table = case.matrix
    tokens = np.zeros(len(table), dtype=int)
    simulated = kernels.embedding(case.fabric, table, tokens, case.dtype).cycles
    closed_form = tensors.gather(case.grid, table.shape, case.dtype.torch_name)
    return CyclePair(closed_form.total_cycles, simulated)


def loss(case: Case) -> CyclePair:
    """Compare the cross entropy of logits, including its softmax."""
    scores, dtype = case.matrix, case.dtype.torch_name
    classes = np.zeros(len(scores), dtype=int)
    simulated = kernels.cross_entropy(case.fabric, scores, classes, case.dtype).cycles
    softmax_cost = tensors.softmax(case.grid, scores.shape, dtype)
    closed_form = softmax_cost + tensors.loss(case.grid, scores.shape, dtype)
    return CyclePair(closed_form.total_cycles, simulated)
