"""Values and cycles of vector ops and axpys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.fabric.dtypes import Array, Dtype, decode, encode
from csnode.fabric.instructions import Axpy, Control, Gemv, Reduction, Vector, VectorOp, send
from csnode.fabric.program import Port, Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import Outcome, run
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError
from waferstream.machine.hardware.fabric import WSE2

RANDOM = np.random.default_rng(11)


TOLERANCE = {Dtype.FP32: 1e-6, Dtype.FP16: 2e-3, Dtype.BF16: 1.6e-2}


ELEMENTWISE = {
    "copy": lambda a: a,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "reciprocal": lambda a: 1 / a,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "fma": lambda a, b, c: a * b + c,
}
SETUP = WSE2.vector_setup_cycles


def compute(
    op: VectorOp, dtype: Dtype, *, data: Mapping[str, Array], out: int | None = None
) -> tuple[Array, int]:
    """Run one op in the three PEs of a row; return (result, cycles)."""
    program = Program(Fabric(1, 3))
    length = next(iter(data.values())).shape[-1]
    arrays = {name: program.array(name, length, dtype) for name in data}
    result = program.array("out", out or length, dtype)
    operands = [arrays[name].whole for name in data][:3]
    program.do(np.s_[:, :], Vector(op, result.whole, *operands))
    outcome = run(program, {name: x[None] for name, x in data.items()})
    return outcome.read("out")[0], outcome.cycles


def three(*names: str, length: int = 16) -> dict[str, Array]:
    return {name: RANDOM.uniform(0.5, 2, size=(3, length)).astype(np.float32) for name in names}


def cycles(banks: tuple[int, int]) -> int:
    """Return the cycles of an addition whose operands begin in the given banks."""
    program = Program(Fabric(1, 1))
    a, b = (program.array(name, 100, bank=bank) for name, bank in zip("ab", banks, strict=True))
    program.do((0, 0), Vector("add", a.whole, a.whole, b.whole))
    return run(program, {}).cycles


def streamed_axpy(
    weights: Array, factors: Array, dtype: Dtype, indexed: bool
) -> tuple[Array, Outcome]:
    """Stream weights from one PE to another that holds the factors; return (sums, outcome)."""
    width = factors.shape[1]
    program = Program(Fabric(1, 2))
    words = program.array("words", len(weights), Dtype.FP32)
    x = program.array("x", factors.size, dtype)
    y = program.array("y", width, Dtype.FP32)
    program.route(0, (0, 0), Port.RAMP, Port.EAST)
    program.route(0, (0, 1), Port.WEST, Port.RAMP)
    program.do((0, 0), send(words.whole, 0), Control(0, to_cores=True))
    program.do((0, 1), Axpy(0, x.whole, y.whole, indexed=indexed))
    outcome = run(program, {"words": weights, "x": factors.ravel()})
    return outcome.read("y")[0, 1], outcome


@pytest.mark.parametrize("dtype", Dtype)
@pytest.mark.parametrize("op", ELEMENTWISE)
def test_vector_elementwise_ops_agree_with_numpy(op: VectorOp, dtype: Dtype) -> None:
    """Results agree to the precision of the format."""
    function: Any = ELEMENTWISE[op]
    data = three(
        *"abc"[: function.__code__.co_argcount if hasattr(function, "__code__") else function.nin]
    )
    stored = [decode(encode(x, dtype), dtype) for x in data.values()]
    result, _ = compute(op, dtype, data=data)
    np.testing.assert_allclose(
        result, function(*stored), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("dtype", Dtype)
def test_vector_reductions_agree_with_numpy(dtype: Dtype) -> None:
    """Sum, maximum and dot product of each PE's own vector, 16 elements."""
    data = three("a", "b")
    a, b = (decode(encode(x, dtype), dtype) for x in data.values())
    cases: list[tuple[Reduction, dict[str, Array], Array]] = [
        ("sum", {"a": data["a"]}, a.sum(axis=1)),
        ("max", {"a": data["a"]}, a.max(axis=1)),
        ("dot", data, (a * b).sum(axis=1)),
    ]
    for op, used, expected in cases:
        result, _ = compute(op, dtype, data=used, out=1)
        np.testing.assert_allclose(result[:, 0], expected, rtol=16 * TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("op", "dtype", "cycles"),
    [
        ("fma", Dtype.FP32, 16),
        ("fma", Dtype.FP16, 4),
        ("copy", Dtype.FP32, 8),
        ("copy", Dtype.BF16, 4),
        ("exp", Dtype.FP32, 16 * WSE2.unary_cycles),
    ],
)
def test_vector_ops_run_at_the_rate_of_their_dtype(op: VectorOp, dtype: Dtype, cycles: int) -> None:
    """16 elements on a WSE-2: one fp32 or four 16-bit multiply-adds per cycle."""
    data = three(*"abc"[: 3 if op == "fma" else 1])
    assert compute(op, dtype, data=data)[1] == SETUP + cycles


def test_vector_broadcasts_a_scalar_operand() -> None:
    """A number, or an array of one element, as softmax subtracts its maximum."""
    program = Program(Fabric(1, 1))
    x, top = program.array("x", 4), program.array("top", 1)
    program.do(
        (0, 0), Vector("max", top.whole, x.whole), Vector("subtract", x.whole, x.whole, top.whole)
    )
    program.do((0, 0), Vector("multiply", x.whole, x.whole, 2.0))
    outcome = run(program, {"x": [1, 5, 2, 3]})
    np.testing.assert_array_equal(outcome.read("x")[0, 0], [-8, 0, -6, -4])


def test_vector_sum_rounds_to_the_dtype_of_its_result() -> None:
    """4096 ones add up to 2048 in fp16, where 2049 does not exist, and to 4096 in fp32."""
    for dtype, expected in ((Dtype.FP16, 2048), (Dtype.FP32, 4096)):
        program = Program(Fabric(1, 1))
        ones, total = program.array("ones", 4096, Dtype.FP16), program.array("total", 1, dtype)
        program.do((0, 0), Vector("sum", total.whole, ones.whole))
        assert run(program, {"ones": 1}).read("total")[0, 0, 0] == expected


def test_vector_operands_in_one_bank_take_longer() -> None:
    """A bank conflict multiplies the cycles of the elements, not of the set-up."""
    setup = WSE2.vector_setup_cycles
    assert cycles((0, 2)) == setup + 100
    assert cycles((0, 0)) == setup + 100 * WSE2.bank_conflict_factor


def test_vector_ops_of_two_threads_run_in_turn() -> None:
    """A PE has one datapath; ops of other PEs do not delay it."""
    program = Program(Fabric(1, 2))
    x = program.array("x", 40)
    for pe, length in ((0, 4), (1, 40)):
        for thread in (0, 1):
            op = Vector("copy", x[:length], x[:length])
            program.do(np.s_[0, pe], op, thread=thread)
    setup, finish_cycles = WSE2.vector_setup_cycles, run(program, {}).finish_cycles
    np.testing.assert_array_equal(finish_cycles, [[2 * (setup + 2), 2 * (setup + 20)]])


@settings(max_examples=15, deadline=None)
@given(num_rows=st.integers(1, 12), width=st.integers(1, 8))
def test_axpy_runs_once_per_weight(num_rows: int, width: int) -> None:
    """Dense fp32 weights in order give the matrix-vector product, a weight in T + 1 cycles."""
    random = np.random.default_rng(num_rows * width)
    weights, factors = random.integers(-4, 5, num_rows), random.integers(-4, 5, (num_rows, width))
    sums, outcome = streamed_axpy(weights, factors, Dtype.FP32, indexed=False)
    np.testing.assert_array_equal(sums, weights @ factors)
    assert outcome.busy_cycles[0, 1] == num_rows * (width + WSE2.triggered_cycles)


def test_axpy_takes_indexed_weights() -> None:
    """Weight and row in one wavelet give the same sums, in cycles by the number of non-zeros."""
    dense = np.array([0, 3, 0, 0, -2, 0, 1, 0], dtype=np.float32)
    factors = RANDOM.integers(-4, 5, (8, 6)).astype(np.float32)
    rows = np.nonzero(dense)[0]
    words = (rows.astype(np.uint32) << 16) | encode(dense[rows], Dtype.FP16)
    sums, outcome = streamed_axpy(words.view(np.float32), factors, Dtype.FP16, indexed=True)
    np.testing.assert_array_equal(sums, dense @ factors)
    assert outcome.busy_cycles[0, 1] == 3 * (2 + WSE2.triggered_cycles)


def test_axpy_refuses_a_weight_without_row() -> None:
    """More weights than rows of factors."""
    with raises(ApplianceCompilationError, "axpy-weight-without-row"):
        streamed_axpy(np.ones(3), np.ones((2, 4)), Dtype.FP32, indexed=False)


def test_gemv_is_an_axpy_per_element() -> None:
    """Whole numbers are exact; an op pays its set-up once and a cycle more per row."""
    program = Program(Fabric(1, 1))
    matrix, vector, sums = (program.array(n, k) for n, k in (("a", 30), ("v", 5), ("y", 6)))
    program.do((0, 0), Gemv(matrix.whole, vector.whole, sums.whole))
    a, v = RANDOM.integers(-4, 5, (5, 6)), RANDOM.integers(-4, 5, 5)
    outcome = run(program, {"a": a.ravel(), "v": v, "y": 1})
    np.testing.assert_array_equal(outcome.read("y")[0, 0], v @ a + 1)
    assert outcome.cycles == SETUP + 5 * (6 + WSE2.triggered_cycles)
