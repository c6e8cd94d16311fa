"""Gradients at the non-zeros of a weight: which calls of a kernel's text they replace."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
import torch

from csnode.engine.binding import built
from csnode.engine.spec import EngineSpec
from csnode.sparsity.products import Pattern, sampled
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.segment import Segment
from waferstream.core.sparsity.nonzeros import Index
from waferstream.numerics.half_types import nearest

ROWS, OUTPUTS, INPUTS = 5, 6, 8
MASK = torch.rand(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0)) < 0.3
SLOPE = torch.randn(ROWS, OUTPUTS, generator=torch.Generator().manual_seed(1))
X = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(2))
SPARSE = EngineSpec(sparse_products=0.5)
PATTERNS = MappingProxyType({"w": Pattern(Index.of(MASK), (OUTPUTS, INPUTS))})

SEGMENT = Segment(0, "backward", "layer", (), ("w",), ("slope", "x"), ("y",), (), (), ())
PLAIN = ("y = t(slope)", "mm = mm(y, x)", "a = t(mm);  mm = None", "b = t(a);  a = None")
TURNED = ("y = t(x)", "mm = mm(y, slope);  y = None", "b = t(mm);  mm = None", "y = t(x)")
NEAREST = "waferstream_numerics_half_types_nearest"
ROUNDED = (*PLAIN[:2], f"n = {NEAREST}(mm, 'cbfloat16')", "a = t(n)", "b = t(a)")
CAST = (*PLAIN[:3], "c = _to_copy(a, dtype = torch.float64)", "b = t(c)")


def gradient(
    lines: tuple[str, ...],
    returned: str = "b",
    engine: EngineSpec = SPARSE,
    patterns: Mapping[str, Pattern] = PATTERNS,
) -> torch.Tensor:
    """Return what a kernel of these lines returns as the gradient of the weight."""
    text = "\n    ".join(("def forward(self, slope, x):", *lines, f"return (y, {returned})"))
    for op in ("t", "mm", "mul", "_to_copy"):
        text = text.replace(f" {op}(", f" torch.ops.aten.{op}.default(")
    text = text.replace("mul.default", "mul.Tensor")
    source = KernelSource(text, {NEAREST: (nearest.__module__, nearest.__name__)}, {})
    _, found = built(source, SEGMENT, engine, patterns)(SLOPE, X)
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("lines", [PLAIN, TURNED, CAST], ids=["plain", "turned", "cast"])
def test_only_values_of_non_zeros_are_computed(lines: tuple[str, ...]) -> None:
    """Through transpositions and casts, which a flat gradient passes as it is."""
    expected = sampled(SLOPE, X, PATTERNS["w"])
    assert torch.equal(gradient(lines), expected.double() if lines is CAST else expected)


def test_values_of_non_zeros_are_rounded_as_a_whole_gradient_is() -> None:
    expected = nearest(sampled(SLOPE, X, PATTERNS["w"]), "cbfloat16")
    assert torch.equal(gradient(ROUNDED), expected)


@pytest.mark.parametrize(
    ("lines", "returned"),
    [
        ((*PLAIN, "z = mul(b, b)"), "b"),
        ((*PLAIN, "z = mul(b, b)"), "z"),
        (("y = t(slope)", "b = mm(y, x)"), "y"),
    ],
    ids=["read by another op", "result of another op", "no product"],
)
def test_a_gradient_that_something_else_needs_is_whole(
    lines: tuple[str, ...], returned: str
) -> None:
    expected = gradient(lines, returned, EngineSpec(), {})
    assert torch.equal(gradient(lines, returned), expected)


def test_a_gradient_that_is_dense_in_this_step_is_whole() -> None:
    """As of a weight without mask, in a step in which RigL reads it, or above the density."""
    dense = SLOPE.t() @ X
    assert torch.equal(gradient(PLAIN, patterns={}), dense)
    assert torch.equal(gradient(PLAIN, engine=EngineSpec(sparse_products=0.1)), dense)
    nothing = Pattern(Index.of(torch.zeros_like(MASK)), (OUTPUTS, INPUTS))
    assert torch.equal(gradient(PLAIN, patterns={"w": nothing}), dense)


def test_16_bits_are_rounded_once() -> None:
    text = "def forward(self, slope, x):\n    b = torch.ops.aten.mm.default(slope.t(), x)\n    return (x, b)"
    _, found = built(KernelSource(text, {}, {}), SEGMENT, SPARSE, PATTERNS)(SLOPE.half(), X.half())
    assert torch.equal(found, sampled(SLOPE.half(), X.half(), PATTERNS["w"]).half())
