"""The work of an op, as timing reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from waferstream.compiler.ops import op_kind
from waferstream.compiler.work import work_of
from waferstream.core.program.segment import OpWork


def works(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> list[OpWork]:
    """Return the work of every op of a function; the first operand counts as a weight."""
    graph = make_fx(function, tracing_mode="fake")(*(torch.ones(shape) for shape in shapes)).graph
    first = next(iter(graph.nodes))
    calls: list[fx.Node] = [node for node in graph.nodes if node.op == "call_function"]
    for node in calls:
        node.meta["kind"] = op_kind(node)
    return [work_of(node, {first}) for node in calls if node.meta["kind"] != "view"]


@pytest.mark.parametrize(
    ("function", "shapes", "loops"),
    [
        (torch.mm, [(3, 4), (4, 5)], (1, 3, 4, 5)),
        (torch.bmm, [(2, 3, 4), (2, 4, 5)], (2, 3, 4, 5)),
        (torch.addmm, [(5,), (3, 4), (4, 5)], (1, 3, 4, 5)),
        (torch.mv, [(3, 4), (4,)], (1, 3, 4, 1)),
        (torch.dot, [(4,), (4,)], (1, 1, 4, 1)),
        (lambda x: torch.mm(x, x), [(4, 4)], (1, 4, 4, 4)),
    ],
)
def test_work_of_matrix_products(
    function: Callable[..., torch.Tensor],
    shapes: list[tuple[int, ...]],
    loops: tuple[int, ...],
) -> None:
    """Batch, rows, inner, columns; two operations for each combination."""
    (work,) = works(function, *shapes)
    assert work.shape == loops
    assert work.flops == 2 * torch.Size(loops).numel()


@pytest.mark.parametrize("left", [True, False])
def test_a_triangular_system_has_half_the_work_of_a_product(left: bool) -> None:
    """Of as many equations as unknowns, with five right-hand sides."""

    def solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve_triangular(a, b, upper=False, left=left)

    (work,) = works(solve, (2, 4, 4), (2, 4, 5) if left else (2, 5, 4))
    assert work.shape == (2, 4, 4, 5)
    assert work.flops == 2 * 4 * 4 * 5


def test_work_of_a_reduction_has_the_shape_of_its_operand() -> None:
    """Not that of its result."""
    (work,) = works(lambda x: x.sum(dim=1), (3, 7))
    assert (work.kind, work.shape) == ("reduction", (3, 7))


def test_work_of_an_op_on_a_weight_streams() -> None:
    """Only ops with a weight among their operands are triggered by arriving weights."""
    with_weight, without = works(lambda w, x: torch.mm(torch.mm(x, w), x), (4, 4), (4, 4))
    assert with_weight.streams
    assert not without.streams


def test_work_of_equal_ops_is_equal() -> None:
    """The name has no number of its place in the graph."""
    equal = works(lambda w, x: torch.mm(w, x) + torch.mm(w, x), (4, 4), (4, 4))[:2]
    assert equal[0] == equal[1]
    assert [work.op for work in works(lambda w, x: torch.exp(torch.mm(w, x)), (4, 4), (4, 4))] == [
        "mm",
        "exp",
    ]


@pytest.mark.parametrize(
    ("weight", "options", "loops", "op"),
    [
        ((6, 4, 3, 2), {}, (2 * 5 * 8, 4 * 3 * 2, 6), "convolution"),
        ((6, 4, 3, 2), {"stride": 2}, (2 * 3 * 4, 4 * 3 * 2, 6), "convolution"),
        ((8, 1, 3, 3), {"groups": 4}, (2 * 5 * 7, 1 * 3 * 3, 8), "convolution"),
        ((4, 6, 3, 2), {"transposed": True}, (2 * 7 * 9, 6 * 3 * 2, 4), "convolution_transposed"),
    ],
)
def test_work_of_a_convolution_is_a_product_of_patches(
    weight: tuple[int, ...], options: dict[str, int], loops: tuple[int, ...], op: str
) -> None:
    """Positions, patch and channels: two operations for each combination (im2col)."""

    def convolve(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        arguments = {"transposed": False, "groups": 1, "stride": 1, **options}
        stride, transposed, groups = (arguments[k] for k in ("stride", "transposed", "groups"))
        found: torch.Tensor = torch.ops.aten.convolution.default(
            x, w, None, [stride] * 2, [0, 0], [1, 1], bool(transposed), [0, 0], groups
        )
        return found

    (work,) = works(convolve, weight, (2, 4, 7, 9))
    assert (work.op, work.kind, work.shape, work.streams) == (op, "convolution", loops, True)
    assert work.flops == 2 * torch.Size(loops).numel()


@pytest.mark.parametrize(
    ("mask", "op", "products"),
    [
        ((True, True, True), "convolution_backward", 2),
        ((True, False, True), "convolution_backward_input", 1),
        ((False, True, False), "convolution_backward_weight", 1),
        ((False, False, True), "convolution_backward_bias", 0),
    ],
)
def test_work_of_convolution_backward_counts_needed_gradients(
    mask: tuple[bool, ...], op: str, products: int
) -> None:
    """One product for the input's gradient, one for the weight's."""

    def backward(w: torch.Tensor, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        found = torch.ops.aten.convolution_backward.default(
            gradient, x, w, [6], [1], [0], [1], False, [0], 1, list(mask)
        )
        return next(tensor for tensor in found if tensor is not None)

    (work,) = works(backward, (6, 4, 3), (2, 4, 9), (2, 6, 7))
    assert (work.op, work.shape) == (op, (14, 12, 6))
    assert work.flops == 2 * 14 * 12 * 6 * products


@pytest.mark.parametrize(
    ("function", "shape", "loops"),
    [
        (lambda x: F.max_pool2d(x, 2), (2, 4, 8, 6), (2, 4, 4, 3 * 4)),
        (lambda x: F.max_pool2d(x, (3, 2)), (2, 4, 9, 6), (2, 4, 3, 3 * 6)),
        (lambda x: F.avg_pool3d(x, 2), (2, 4, 8, 6, 4), (2, 4, 4, 3, 2 * 8)),
        (lambda x: F.adaptive_max_pool2d(x, (4, 3)), (2, 4, 8, 9), (2, 4, 4, 3 * 6)),
        (lambda x: F.interpolate(x, scale_factor=2), (2, 4, 3, 3), (2, 4, 6, 6)),
        (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (2, 4, 3), (2, 4, 6 * 2)),
        (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (2, 4, 3, 3), (2, 4, 6, 96)),
        (
            lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
            (2, 4, 8, 8),
            (2, 4, 4, 4 * 4 * 4),
        ),
        (lambda x: F.unfold(x, 3), (2, 4, 5, 6), (2, 36, 12)),
        (lambda x: F.fold(x, (5, 6), 3), (2, 36, 12), (2, 36, 12)),
        (lambda x: F.grid_sample(x, x.movedim(1, 3), align_corners=True), (1, 2, 3, 4), None),
    ],
)
def test_work_of_windows_counts_every_value_that_is_read(
    function: Callable[[torch.Tensor], torch.Tensor],
    shape: tuple[int, ...],
    loops: tuple[int, ...] | None,
) -> None:
    """The values of all windows, side by side in the last dimension."""
    (work,) = (w for w in works(function, shape) if w.kind == "window")
    loops = loops or (1, 2, 3, 4 * 4)
    assert work.shape == loops
    assert work.flops == torch.Size(loops).numel()


def test_work_of_avg_pool_backward_is_that_of_the_forward_op() -> None:
    """Every value that a window read gets a share of the gradient."""

    def backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten.avg_pool2d_backward.default(
            gradient, x, [2, 2], [2, 2], [0, 0], False, True, None
        )
        return found

    (work,) = works(backward, (2, 4, 4, 3), (2, 4, 8, 6))
    assert (work.kind, work.shape) == ("window", (2, 4, 4, 12))


@pytest.mark.parametrize(
    ("left", "right", "loops"),
    [
        ((32, 16), (4, 16, 8), (4, 8, 16, 8)),
        ((16, 32), (32, 8), (4, 16, 8, 8)),
        ((4, 16, 8), (8, 32), (4, 16, 8, 8)),
    ],
)
def test_work_of_a_grouped_product_divides_the_ragged_extent(
    left: tuple[int, ...], right: tuple[int, ...], loops: tuple[int, ...]
) -> None:
    """Offsets are values, so groups count as equally large."""

    def product(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ends = torch.arange(1, 5, dtype=torch.int32) * 8
        return torch._grouped_mm(w.bfloat16(), x.bfloat16(), offs=ends)

    (work,) = (w for w in works(product, left, right) if w.kind == "matmul")
    assert work.shape == loops
    assert work.flops == 2 * torch.Size(loops).numel()


@pytest.mark.parametrize(
    ("function", "shapes", "op", "loops"),
    [
        (
            lambda x: F.batch_norm(x, None, None, training=True),
            [(2, 4, 5, 6)],
            "batch_norm",
            (2, 5, 6, 4),
        ),
        (lambda x, y: torch.cdist(x, y, p=1.0), [(2, 3, 5), (2, 4, 5)], "_cdist", (2, 3, 4, 5)),
        (F.pdist, [(4, 5)], "_pdist", (6, 5)),
        (F.bilinear, [(3, 5), (3, 4), (2, 5, 4)], "_trilinear", (3, 2, 5, 4)),
    ],
)
def test_work_of_ops_with_their_own_extents(
    function: Callable[..., torch.Tensor],
    shapes: list[tuple[int, ...]],
    op: str,
    loops: tuple[int, ...],
) -> None:
    """Channels last, pairs of rows, and all extents of a product of three tensors."""
    (work,) = (w for w in works(function, *shapes) if op in w.op)
    assert work.shape == loops


def test_work_of_an_embedding_bag_has_a_row_per_index() -> None:
    """Not one per bag."""

    def bags(table: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(torch.zeros(2, 3, dtype=torch.int64), table)

    (work,) = (w for w in works(bags, (7, 5)) if w.op == "_embedding_bag_forward_only")
    assert (work.kind, work.shape) == ("gather", (6, 5))
