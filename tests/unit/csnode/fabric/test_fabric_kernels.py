"""What a PE computes: vector ops, and weights that trigger an axpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csnode.fabric import (
    Axpy,
    Control,
    Dtype,
    Fabric,
    Gemv,
    Port,
    Program,
    Stream,
    Vector,
    receive,
    run,
    send,
)
from csnode.fabric.collectives import add_reduce, chain, paths
from csnode.fabric.dtypes import decode, encode
from timing.hardware.fabric import WSE2
from wsc.core.errors import ApplianceCompilationError

SETUP = WSE2.vector_setup_cycles
RANDOM = np.random.default_rng(11)
TOLERANCE = {Dtype.FP32: 1e-6, Dtype.FP16: 2e-3, Dtype.BF16: 1.6e-2}


def compute(op, dtype, *, data, out=None):
    """One op in the three PEs of a row: (result, cycles)."""
    program = Program(Fabric(1, 3))
    length = next(iter(data.values())).shape[-1]
    arrays = {name: program.array(name, length, dtype) for name in data}
    result = program.array("out", out or length, dtype)
    operands = [arrays[name].whole for name in data][:3]
    program.do(np.s_[:, :], Vector(op, result.whole, *operands))
    outcome = run(program, {name: x[None] for name, x in data.items()})
    return outcome.read("out")[0], outcome.cycles


def three(*names, length=16):
    return {name: RANDOM.uniform(0.5, 2, size=(3, length)).astype(np.float32) for name in names}


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


@pytest.mark.parametrize("dtype", Dtype)
@pytest.mark.parametrize("op", ELEMENTWISE)
def test_elementwise_ops_agree_with_numpy(op, dtype):
    """To the precision of the format."""
    function = ELEMENTWISE[op]
    data = three(
        *"abc"[: function.__code__.co_argcount if hasattr(function, "__code__") else function.nin]
    )
    stored = [decode(encode(x, dtype), dtype) for x in data.values()]
    result, _ = compute(op, dtype, data=data)
    np.testing.assert_allclose(
        result, function(*stored), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("dtype", Dtype)
def test_reductions_agree_with_numpy(dtype):
    """Sum, maximum and dot product of each PE's own vector, 16 elements."""
    data = three("a", "b")
    a, b = (decode(encode(x, dtype), dtype) for x in data.values())
    for op, used, expected in (
        ("sum", {"a": data["a"]}, a.sum(axis=1)),
        ("max", {"a": data["a"]}, a.max(axis=1)),
        ("dot", data, (a * b).sum(axis=1)),
    ):
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
def test_ops_run_at_the_rate_of_their_format(op, dtype, cycles):
    """16 elements on a WSE-2: one fp32 or four 16-bit multiply-adds a cycle, copies twice that."""
    data = three(*"abc"[: 3 if op == "fma" else 1])
    assert compute(op, dtype, data=data)[1] == SETUP + cycles


def test_a_scalar_operand_is_spread_over_the_vector():
    """A number, or an array of one element, as softmax subtracts its maximum."""
    program = Program(Fabric(1, 1))
    x, top = program.array("x", 4), program.array("top", 1)
    program.do(
        (0, 0), Vector("max", top.whole, x.whole), Vector("subtract", x.whole, x.whole, top.whole)
    )
    program.do((0, 0), Vector("multiply", x.whole, x.whole, 2.0))
    outcome = run(program, {"x": [1, 5, 2, 3]})
    np.testing.assert_array_equal(outcome.read("x")[0, 0], [-8, 0, -6, -4])


def test_an_fp16_sum_rounds_as_often_as_its_format_says():
    """4096 ones add up to 2048 in fp16, where 2049 does not exist, and to 4096 in fp32."""
    for dtype, expected in ((Dtype.FP16, 2048), (Dtype.FP32, 4096)):
        program = Program(Fabric(1, 1))
        ones, total = program.array("ones", 4096, Dtype.FP16), program.array("total", 1, dtype)
        program.do((0, 0), Vector("sum", total.whole, ones.whole))
        assert run(program, {"ones": 1}).read("total")[0, 0, 0] == expected


def streamed_axpy(weights, factors, dtype, indexed):
    """One PE streams weights to another one, which holds the factors: (sums, outcome)."""
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


@settings(max_examples=15, deadline=None)
@given(num_rows=st.integers(1, 12), width=st.integers(1, 8))
def test_each_weight_triggers_an_axpy(num_rows, width):
    """Dense fp32 weights in order: the sums are the matrix-vector product, a weight T + 1 cycles."""
    random = np.random.default_rng(num_rows * width)
    weights, factors = random.integers(-4, 5, num_rows), random.integers(-4, 5, (num_rows, width))
    sums, outcome = streamed_axpy(weights, factors, Dtype.FP32, indexed=False)
    np.testing.assert_array_equal(sums, weights @ factors)
    assert outcome.busy_cycles[0, 1] == num_rows * (width + WSE2.triggered_cycles)


def test_zero_weights_need_not_be_sent():
    """Weight and row in one wavelet: the same sums, in time by the number of non-zeros."""
    dense = np.array([0, 3, 0, 0, -2, 0, 1, 0], dtype=np.float32)
    factors = RANDOM.integers(-4, 5, (8, 6)).astype(np.float32)
    rows = np.nonzero(dense)[0]
    words = (rows.astype(np.uint32) << 16) | encode(dense[rows], Dtype.FP16)
    sums, outcome = streamed_axpy(words.view(np.float32), factors, Dtype.FP16, indexed=True)
    np.testing.assert_array_equal(sums, dense @ factors)
    assert outcome.busy_cycles[0, 1] == 3 * (2 + WSE2.triggered_cycles)


def test_a_weight_without_factors_is_refused():
    """More weights than rows."""
    with pytest.raises(ApplianceCompilationError, match="no row of factors"):
        streamed_axpy(np.ones(3), np.ones((2, 4)), Dtype.FP32, indexed=False)


def test_a_matrix_times_a_vector_is_mapped_axpys():
    """Whole numbers are exact; an op pays its set-up once and a cycle more per row."""
    program = Program(Fabric(1, 1))
    matrix, vector, sums = (program.array(n, k) for n, k in (("a", 30), ("v", 5), ("y", 6)))
    program.do((0, 0), Gemv(matrix.whole, vector.whole, sums.whole))
    a, v = RANDOM.integers(-4, 5, (5, 6)), RANDOM.integers(-4, 5, 5)
    outcome = run(program, {"a": a.ravel(), "v": v, "y": 1})
    np.testing.assert_array_equal(outcome.read("y")[0, 0], v @ a + 1)
    assert outcome.cycles == SETUP + 5 * (6 + WSE2.triggered_cycles)


def test_operands_that_do_not_fit_are_refused():
    """Wrong numbers of operands, of elements, and of results."""
    program = Program(Fabric(1, 1))
    x, one = program.array("x", 6), program.array("one", 1)
    for bad, message in (
        (Vector("add", x.whole, x.whole), "'add'"),
        (Vector("exp", x.whole, x.whole, x.whole), "'exp'"),
        (Vector("fma", x.whole, x.whole, x.whole), "'fma'"),
        (Vector("add", x.whole, x.whole, x[:4]), "'add'"),
        (Vector("sum", x[:4], x.whole), "'sum'"),
        (Gemv(x.whole, x[:4], one.whole), "a matrix"),
    ):
        with pytest.raises(ApplianceCompilationError, match=message):
            program.do((0, 0), bad)


def test_a_control_wavelet_ends_no_ordinary_stream():
    """A stream knows its length; a control wavelet in front of it is a mistake."""
    program = Program(Fabric(1, 2))
    x = program.array("x", 2)
    program.route(0, (0, 0), Port.RAMP, Port.EAST)
    program.route(0, (0, 1), Port.WEST, Port.RAMP)
    program.do((0, 0), Control(0, to_cores=True))
    program.do((0, 1), receive(x.whole, 0))
    with pytest.raises(ApplianceCompilationError, match="control wavelet meets"):
        run(program, {})


def test_streams_take_maxima_as_well_as_sums():
    """A chain of maxima along a row, as a softmax over PEs needs it."""
    program = Program(Fabric(2, 5))
    x = program.array("x", 3)
    add_reduce(program, paths.rows(program.fabric), chain(5), x.whole, (0, 1), combine="maximum")
    data = RANDOM.normal(size=(2, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(program, {"x": data}).read("x")[:, 0], data.max(axis=1))


def test_a_strided_operand_is_gathered():
    """Every third element, sent and stored one after the other."""
    program = Program(Fabric(1, 2))
    x = program.array("x", 9)
    program.route(0, (0, 0), Port.RAMP, Port.EAST)
    program.route(0, (0, 1), Port.WEST, Port.RAMP)
    program.do((0, 0), Stream(operand=x[::3], send=0))
    program.do((0, 1), receive(x[:3], 0))
    data = np.stack([np.arange(9), np.zeros(9)])[None]
    np.testing.assert_array_equal(run(program, {"x": data}).read("x")[0, 1, :3], [0, 3, 6])
