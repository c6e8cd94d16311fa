"""Binding: which calls of a kernel's text an engine takes over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from csnode.engine.binding import built
from csnode.engine.places import GradientPlaces
from csnode.engine.spec import TORCH, EngineSpec
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.segment import Segment

WAFER = EngineSpec(default="wafer", rows=2, columns=3)
SEGMENT = Segment(0, "forward", "layer", ("w",), (), ("x",), (), (), (), ())

ROWS, OUTPUTS, INPUTS = 5, 6, 8
SLOPE = torch.randn(ROWS, OUTPUTS, generator=torch.Generator().manual_seed(1))
X = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(2))
SEGMENT_of_gradient_places = Segment(
    0, "backward", "layer", (), ("w",), ("slope", "x"), ("y",), (), (), ()
)
PRODUCT = ("y = t(slope)", "mm = mm(y, x)", "a = t(mm);  mm = None", "b = t(a);  a = None")
SUM = ("y = t(slope)", "c = mm(y, x)", "d = mm(y, x)", "b = add(c, d)")


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


def run(
    lines: tuple[str, ...],
    places: GradientPlaces,
    place: torch.Tensor,
    engine: EngineSpec = TORCH,
    slope: torch.Tensor = SLOPE,
) -> torch.Tensor:
    """Return the gradient of a kernel of these lines, which may write it into a place."""
    text = "\n    ".join(("def forward(self, slope, x):", *lines, "return (y, b)"))
    for op in ("t", "mm", "mul", "add", "_to_copy"):
        text = text.replace(f" {op}(", f" torch.ops.aten.{op}.default(")
    text = text.replace("mul.default", "mul.Tensor").replace("add.default", "add.Tensor")
    kernel = built(KernelSource(text, {}, {}), SEGMENT_of_gradient_places, engine, places=places)
    with places.at({"w": place}):
        _, found = kernel(slope, X.to(slope.dtype))
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize(
    ("lines", "factor"), [(PRODUCT, 1), (SUM, 2)], ids=["product", "sum of two gradients"]
)
def test_a_gradient_is_written_into_its_place(lines: tuple[str, ...], factor: int) -> None:
    places, place = GradientPlaces(set()), torch.full((OUTPUTS, INPUTS), torch.nan)
    found = run(lines, places, place)
    assert places.weights == {"w"}
    assert found.data_ptr() == place.data_ptr()
    assert torch.equal(place, factor * (SLOPE.t() @ X))


@pytest.mark.parametrize(
    "lines",
    [
        (*PRODUCT, "z = mul(b, b)"),
        ("y = t(x)", "mm = mm(y, slope)", "b = t(mm);  mm = None"),
        (*PRODUCT[:3], "c = _to_copy(a, dtype = torch.float64)", "b = t(c)"),
        ("y = t(slope)", "c = mm(y, x)", "b = add(c, 1.0)"),
    ],
    ids=["read by another op", "transposed", "cast", "sum with a number"],
)
def test_other_gradients_have_memory_of_their_own(lines: tuple[str, ...]) -> None:
    """As if there were no places."""
    places, place = GradientPlaces(set()), torch.zeros(OUTPUTS, INPUTS)
    assert run(lines, places, place).data_ptr() != place.data_ptr()
    assert places.weights == set()
    assert not place.any()


def test_a_gradient_of_another_type_is_not_written() -> None:
    places, place = GradientPlaces(set()), torch.zeros(OUTPUTS, INPUTS)
    found = run(PRODUCT, places, place, slope=SLOPE.bfloat16())
    assert found.dtype == torch.bfloat16
    assert not place.any()


def test_a_gradient_is_not_written_at_an_odd_address() -> None:
    """Where the bits of the product could be others."""
    places = GradientPlaces(set())
    place = torch.zeros(OUTPUTS * INPUTS + 1)[1:].view(OUTPUTS, INPUTS)
    assert torch.equal(run(PRODUCT, places, place), SLOPE.t() @ X)
    assert not place.any()


@pytest.mark.parametrize(
    "engine", [EngineSpec(default="wafer", rows=2, columns=3), EngineSpec(sparse_products=0.5)]
)
def test_other_engines_write_no_gradients(engine: EngineSpec) -> None:
    places, place = GradientPlaces(set()), torch.zeros(OUTPUTS, INPUTS)
    run(PRODUCT, places, place, engine)
    assert places.weights == set()
    assert not place.any()


def test_each_thread_has_its_own_places() -> None:
    """And none after the block."""
    places, both = GradientPlaces(set()), Barrier(2)

    def write(slope: torch.Tensor) -> torch.Tensor:
        place = torch.zeros(OUTPUTS, INPUTS)
        with places.at({"w": place}):
            both.wait()
            run(PRODUCT, places, place, slope=slope)
        return place

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(write, (SLOPE, 2 * SLOPE)))
    assert torch.equal(found[0], SLOPE.t() @ X)
    assert torch.equal(found[1], 2 * (SLOPE.t() @ X))


def test_systems_of_a_process_share_the_text_of_a_bound_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second system parses and writes nothing; its gradients have places of their own."""
    source = kernel(
        "b = torch.ops.aten.mm.default(w, x)",
        "return (w, b)",
    )
    places = [GradientPlaces(set()), GradientPlaces(set())]
    built(source, SEGMENT_of_gradient_places, TORCH, places=places[0])
    monkeypatch.setattr("csnode.engine.binding.ast.parse", None)
    second = built(source, SEGMENT_of_gradient_places, TORCH, places=places[1])
    assert places[1].weights == {"w"}
    place = torch.zeros(5, 4)
    with places[1].at({"w": place}):
        _, gradient = second(torch.ones(5, 3), torch.ones(3, 4))
    assert gradient.data_ptr() == place.data_ptr()
