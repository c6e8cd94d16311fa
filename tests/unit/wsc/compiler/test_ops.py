"""The kind and work of an op, as timing reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from wsc.compiler.ops import op_kind, work_of
from wsc.core.program import OpWork


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
