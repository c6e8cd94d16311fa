"""Binding: which calls of a kernel's text an engine takes over."""

from __future__ import annotations

import torch

from csnode.engine.binding import built
from csnode.engine.spec import EngineSpec
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.segment import Segment

WAFER = EngineSpec(default="wafer", rows=2, columns=3)
SEGMENT = Segment(0, "forward", "layer", ("w",), (), ("x",), (), (), (), ())


def kernel(*lines: str) -> KernelSource:
    text = "\n    ".join(["def forward(self, w, x):", *lines])
    return KernelSource(text, {}, {})


def test_product_with_a_cast_and_transposed_weight_streams() -> None:
    """The weight is the left operand here; the cast and the view are made of weights alone."""
    source = kernel(
        "cast = torch.ops.aten._to_copy.default(w, dtype = torch.float32);  w = None",
        "t = torch.ops.aten.t.default(cast);  cast = None",
        "mm = torch.ops.aten.mm.default(t, x);  t = x = None",
        "return (mm,)",
    )
    w, x = torch.randn(7, 5), torch.randn(7, 4)
    (ours,) = built(source, SEGMENT, WAFER)(w, x)
    text = source.text.replace("mm.default(t, x)", "mm.default(torch.ops.aten.t.default(x), cast)")
    text = text.replace(";  cast = None", "").replace("x = None", "x = None;  mm = mm.T")
    (streamed,) = built(KernelSource(text, {}, {}), SEGMENT, WAFER)(w, x)
    assert torch.equal(ours, streamed)
    torch.testing.assert_close(ours, w.T @ x)


def test_op_without_kernel_is_refused() -> None:
    source = kernel("y = torch.ops.aten.cumsum.default(x, 0)", "return (y,)")
    with raises(ApplianceCompilationError, "engine-without-kernel"):
        built(source, SEGMENT, WAFER)
    allowed = EngineSpec(default="wafer", kernels={"reduction": "torch"})
    (y,) = built(source, SEGMENT, allowed)(torch.ones(2), torch.ones(3))
    assert y.tolist() == [1, 2, 3]
