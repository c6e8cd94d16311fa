"""Instructions whose operands do not fit each other."""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Dtype
from csnode.fabric.instructions import Dots, Gemv, Stream, Vector
from csnode.fabric.program import Port, Program
from csnode.fabric.region import Fabric
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError


def test_check_instruction_refuses_wrong_operands() -> None:
    """Wrong numbers of operands, of elements, and of results."""
    program = Program(Fabric(1, 1))
    program.route(0, (0, 0), Port.NORTH, Port.RAMP)
    x, one = program.array("x", 6), program.array("one", 1)
    for bad, code in (
        (Vector("add", x.whole, x.whole), "vector-operands-mismatch"),
        (Vector("exp", x.whole, x.whole, x.whole), "vector-operands-mismatch"),
        (Vector("fma", x.whole, x.whole, x.whole), "vector-operands-mismatch"),
        (Vector("add", x.whole, x.whole, x[:4]), "vector-operands-mismatch"),
        (Vector("sum", x[:4], x.whole), "vector-operands-mismatch"),
        (Gemv(x.whole, x[:4], one.whole), "gemv-operands-mismatch"),
        (Dots(0, x.whole, x[:4], one.whole), "dots-operands-mismatch"),
    ):
        with raises(ApplianceCompilationError, code):
            program.do((0, 0), bad)


def test_check_instruction_refuses_columns_as_operand() -> None:
    """A stream reads one contiguous run, and 16-bit runs are pairs."""
    program = Program(Fabric(1, 1))
    part, whole = program.array("part", 6, Dtype.FP16), program.array("whole", 24, Dtype.FP16)
    with raises(ApplianceCompilationError, "stream-reads-columns"):
        program.do(np.s_[:, :], Stream(whole.columns(0, 2, width=8), store=part.whole))
    with raises(ApplianceCompilationError, "stream-partial-word"):
        program.do(np.s_[:, :], Stream(part[:3], store=whole.columns(0, 1, width=8)))
