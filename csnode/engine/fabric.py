"""Kernels of the array on the simulator of the fabric: the same bits, and counted cycles.

Shapes that do not divide are padded with zeros, softmax with minus infinity; no bit depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from csnode.engine.array import WaferArray
from csnode.engine.spec import KernelName
from csnode.fabric import kernels
from csnode.fabric.collectives import paths
from csnode.fabric.collectives.reduce import add_sum, add_sum_for_all
from csnode.fabric.collectives.trees import chain
from csnode.fabric.defects import Defects
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.instructions import Vector
from csnode.fabric.kernels.tiles import split
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import Outcome, run

_DTYPES = {torch.float16: Dtype.FP16, torch.bfloat16: Dtype.BF16}


class Run(NamedTuple):
    """One kernel that was simulated: its name, the sizes of its operands, and what came of it."""

    kernel: KernelName
    shape: tuple[int, ...]
    dtype: str
    outcome: Outcome

    @property
    def cycles(self) -> int:
        """Cycles from its first instruction to the end of its last."""
        return self.outcome.cycles


class FabricArray(WaferArray):
    """A region of the simulated fabric.

    Args:
        rows: Rows of PEs that hold tokens.
        columns: PEs of a row.
        defects: Dead PEs and links around which the region lies.
        on_run: Called with every kernel that was simulated.
        keeps_history: Whether outcomes have what every PE did.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        defects: Defects | None = None,
        *,
        on_run: Callable[[Run], None] | None = None,
        keeps_history: bool = False,
    ) -> None:
        super().__init__(rows, columns)
        self.defects = defects or Defects()
        self._on_run, self._keeps_history = on_run, keeps_history

    def streamed_product(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        dtype = _dtype(x, weights)
        fabric = self._fabric(self.rows + 1, self.columns)
        result = kernels.weight_streaming(
            fabric, _array(x), _array(weights), dtype, Dtype.FP32, continuous=True
        )
        self._note("streamed_product", (*x.shape, weights.shape[1]), result.outcome, dtype)
        return torch.from_numpy(result.values)

    def token_product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        dtype = _dtype(left, right)
        x = _padded(left.T, self.rows, self.columns)
        dy = _padded(right, self.rows, self.columns * dtype.per_word)  # whole words travel
        fabric = self._fabric(self.rows, self.columns)
        result = kernels.weight_gradient(fabric, x, dy, dtype, chain(self.rows))
        self._note("token_product", (*left.shape, right.shape[1]), result.outcome, dtype)
        return torch.from_numpy(result.values[: left.shape[0], : right.shape[1]].copy())

    def resident_product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        flat = (x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (left, right))
        products = [self._summa(a, b) for a, b in zip(*flat, strict=True)]
        return torch.stack(products).reshape(*batch, left.shape[-2], right.shape[-1])

    def _summa(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        side = min(self.rows, self.columns)
        dtype = _dtype(left, right)
        a, b = (_padded(t, side * dtype.per_word, side * dtype.per_word) for t in (left, right))
        result = kernels.summa(self._fabric(side, side), a, b, dtype)
        self._note("resident_product", (*left.shape, right.shape[1]), result.outcome, dtype)
        return torch.from_numpy(result.values[: left.shape[0], : right.shape[1]].copy())

    def feature_sum(self, values: torch.Tensor) -> torch.Tensor:
        if values.dtype == torch.float64:  # sums of products: part of the program of a norm
            return super().feature_sum(values)
        shape = (1, 1, *values.shape)
        stacked = values.float().reshape(-1, *shape[-2:])
        count, tokens, features = stacked.shape
        height, width = -(-tokens // self.rows), -(-features // self.columns)
        padded = torch.zeros(count, self.rows * height, self.columns * width)
        padded[:, :tokens, :features] = stacked
        by_row = padded.reshape(count, self.rows, height, -1).transpose(0, 1)
        matrix = by_row.reshape(-1, padded.shape[-1]).numpy()
        fabric = self._fabric(self.rows, self.columns)
        program = Program(fabric)
        tile = program.array("x", count * height * width, bank=0)
        total = program.array("total", count * height, bank=4)
        program.do(EVERYWHERE, Vector("sum", total.whole, tile.whole))
        add_sum_for_all(program, paths.rows(fabric), total.whole, colour=0)
        outcome = run(program, {"x": split(matrix, self.rows, self.columns, transposed=True)})
        self._note("feature_sum", tuple(values.shape), outcome)
        sums = outcome.read("total")[:, 0].reshape(self.rows, count, height).transpose(1, 0, 2)
        kept = sums.reshape(count, -1)[:, :tokens].reshape(values.shape[:-1])
        return torch.from_numpy(kept.copy())

    def token_sum(self, values: torch.Tensor) -> torch.Tensor:
        matrix = _padded(values.float(), self.rows, self.columns)
        width = matrix.shape[1] // self.columns
        fabric = self._fabric(self.rows, self.columns)
        program = Program(fabric)
        tile = program.array("x", matrix.size // fabric.num_pes, bank=0)
        total = program.array("total", width, bank=4)
        program.do(EVERYWHERE, Vector("sum", total.whole, tile.whole))
        add_sum(program, paths.columns(fabric), total.whole, colour=0)
        outcome = run(program, {"x": split(matrix, self.rows, self.columns)})
        self._note("token_sum", tuple(values.shape), outcome)
        return torch.from_numpy(outcome.read("total")[0].reshape(-1)[: values.shape[1]].copy())

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        matrix = _padded(x.float(), self.rows, self.columns)
        matrix[:, x.shape[1] :] = -np.inf
        result = kernels.softmax(self._fabric(self.rows, self.columns), matrix)
        self._note("softmax", tuple(x.shape), result.outcome)
        return torch.from_numpy(result.values[: x.shape[0], : x.shape[1]].copy())

    def layer_norm(
        self, x: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        normal, result = self._norm(x, epsilon, is_centred=True)
        height = -(-x.shape[0] // self.rows)
        mean = result.outcome.read("sums")[:, 0, :height].reshape(-1)[: x.shape[0]]
        return normal, torch.from_numpy(mean.copy()), self._factor(x, result)

    def rms_norm(self, x: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
        normal, result = self._norm(x, epsilon, is_centred=False)
        return normal, self._factor(x, result)

    def _norm(
        self, x: torch.Tensor, epsilon: float, *, is_centred: bool
    ) -> tuple[torch.Tensor, kernels.Result]:
        fabric, matrix = (
            self._fabric(self.rows, self.columns),
            _padded(x.float(), self.rows, self.columns),
        )
        one, features = np.ones(matrix.shape[1]), x.shape[1]
        if is_centred:
            result = kernels.layer_norm(
                fabric, matrix, one, 0 * one, epsilon=epsilon, features=features
            )
        else:
            result = kernels.rms_norm(fabric, matrix, one, epsilon=epsilon, features=features)
        self._note("layer_norm" if is_centred else "rms_norm", tuple(x.shape), result.outcome)
        return torch.from_numpy(result.values[: x.shape[0], : x.shape[1]].copy()), result

    def _factor(self, x: torch.Tensor, result: kernels.Result) -> torch.Tensor:
        factor = result.outcome.read("factor")[:, 0].reshape(-1)[: x.shape[0]]
        return torch.from_numpy(factor.copy())

    def _fabric(self, rows: int, columns: int) -> Fabric:
        return Fabric(rows, columns, defects=self.defects, keeps_history=self._keeps_history)

    def _note(
        self,
        kernel: KernelName,
        shape: tuple[int, ...],
        outcome: Outcome,
        dtype: Dtype = Dtype.FP32,
    ) -> None:
        if self._on_run is not None:
            self._on_run(Run(kernel, shape, dtype.torch_name, outcome))


def _dtype(left: torch.Tensor, right: torch.Tensor) -> Dtype:
    """Return the format of the operands of a product: fp32 unless both have one of 16 bits."""
    return _DTYPES.get(left.dtype, Dtype.FP32) if left.dtype == right.dtype else Dtype.FP32


def _array(x: torch.Tensor) -> Array:
    return x.detach().float().numpy()


def _padded(x: torch.Tensor, rows: int, columns: int) -> Array:
    """Return a matrix as fp32, with zeros up to whole tiles."""
    high, wide = (-(-size // pes) * pes for size, pes in zip(x.shape, (rows, columns), strict=True))
    padded = np.zeros((high, wide), dtype=np.float32)
    padded[: x.shape[0], : x.shape[1]] = _array(x)
    return padded
