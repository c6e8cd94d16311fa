"""Fused kernels on a node: on their own processor alone, with gradients where they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from csnode.engine.fused import bound_fused
from csnode.engine.places import GradientPlaces
from tests.support.errors import raises
from waferstream.compiler.fusion.shared_object import processor
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program import fused as module
from waferstream.core.program.fused import FusedKernel
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.segment import Segment

SEGMENT = Segment(0, "backward", "layer", (), ("w",), ("slope", "x"), (), (), (), ())
KERNEL = KernelSource("def forward(self, slope, x):\n    ...", {}, {})
TEXT = """
def region_1(x, slope):
    buf0 = empty_strided_cpu((6, 8), (8, 1), torch.float32)
    extern_kernels.mm(reinterpret_tensor(slope, (6, 5), (1, 6), 0), x, out=buf0)
    return (buf0,)


def forward(self, slope, x):
    values_1 = region_1(x, slope);  x = slope = None
    getitem = values_1[0];  values_1 = None
    return (getitem,)
"""
SLOPE, X = torch.randn(5, 6), torch.randn(5, 8)


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> FusedKernel:
    monkeypatch.setattr(module, "_loaded", lambda _: None)  # it has no loops
    return FusedKernel(TEXT, (), b"", processor())


def test_gradient_is_written_into_its_place(fused: FusedKernel) -> None:
    places = GradientPlaces(set())
    kernel = bound_fused(fused, KERNEL, SEGMENT, places)
    assert places.weights == {"w"}
    place = torch.empty(6, 8)
    with places.at({"w": place}):
        (gradient,) = kernel(SLOPE, X)
    assert gradient.data_ptr() == place.data_ptr()
    assert torch.equal(place, SLOPE.t() @ X)
    assert torch.equal(kernel(SLOPE, X)[0], place)


def test_place_of_another_type_is_left_alone(fused: FusedKernel) -> None:
    places = GradientPlaces(set())
    with places.at({"w": torch.empty(6, 8, dtype=torch.bfloat16)}):
        (gradient,) = bound_fused(fused, KERNEL, SEGMENT, places)(SLOPE, X)
    assert torch.equal(gradient, SLOPE.t() @ X)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return (buf0,)", "return (reinterpret_tensor(buf0, (8, 6), (1, 8), 0),)"),
        ("(6, 8), (8, 1), torch", "(6, 8), (1, 6), torch"),
        ("(6, 8), (8, 1), torch", "(6, 8), (16, 1), torch"),
        ("return (buf0,)", "return (buf0, reinterpret_tensor(buf0, (48,), (1,), 0))"),
        ("return (buf0,)", "buf1 = buf0\n    return (buf0, buf1)"),
        ("return (getitem,)", "other = getitem.t()\n    return (getitem,)"),
    ],
    ids=["turned", "columns", "padded", "returned-twice", "renamed", "read"],
)
def test_gradient_of_another_order_or_with_other_readers_has_its_own_memory(
    fused: FusedKernel, before: str, after: str
) -> None:
    assert before in TEXT
    places = GradientPlaces(set())
    bound_fused(replace(fused, text=TEXT.replace(before, after)), KERNEL, SEGMENT, places)
    assert not places.weights


def test_kernel_of_another_processor_is_refused(fused: FusedKernel) -> None:
    with raises(ApplianceCompilationError, "kernel-of-another-processor"):
        bound_fused(replace(fused, processor="another"), KERNEL, SEGMENT, None)
