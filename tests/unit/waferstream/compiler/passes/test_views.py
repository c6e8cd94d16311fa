"""Ops read values through as few views as possible, within one segment."""

from collections import Counter
from typing import Any

import torch
from torch import fx

from tests.support.programs.captured_steps import captured
from tests.support.programs.kernels import run_eagerly, run_kernels
from tests.support.roles.local_machine import FP32, Regression, compile_model, random_batches
from waferstream.compiler.passes.pipeline import run_passes
from waferstream.compiler.passes.views import merge_views

TURN, VIEW = torch.ops.aten.t.default, torch.ops.aten.view.default


class Step:
    """A captured step of a few nodes, all in one segment unless stated."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.x = self.graph.placeholder("x")

    def call(self, target: Any, *args: Any, segment: str = "a") -> fx.Node:
        node = self.graph.call_function(target, args)
        node.meta["segment"] = segment
        return node

    def merged(self, *returned: fx.Node) -> list[Any]:
        """Return what the step returns, after the pass."""
        self.graph.output(list(returned))
        merge_views(self)  # type: ignore[arg-type]
        self.graph.lint()
        return list(self.graph.find_nodes(op="output")[0].args[0])

    @property
    def calls(self) -> list[Any]:
        return [node.target for node in self.graph.nodes if node.op == "call_function"]


def test_pairs_of_transpositions_are_dropped() -> None:
    """Of three in a row, one stays."""
    step = Step()
    value = step.call(torch.neg, step.x)
    once = step.call(TURN, value)
    twice = step.call(TURN, once)
    thrice = step.call(TURN, twice)
    assert step.merged(twice, thrice) == [value, thrice]
    assert thrice.args == (value,)
    assert step.calls == [torch.neg, TURN]


def test_view_of_a_view_reads_its_source() -> None:
    """The first view stays where something else reads it."""
    step = Step()
    first = step.call(VIEW, step.x, [2, 3])
    second = step.call(VIEW, first, [3, 2])
    third = step.call(VIEW, second, [6])
    step.merged(first, third)
    assert third.args == (step.x, [6])
    assert step.calls == [VIEW, VIEW]


def test_views_of_two_segments_stay() -> None:
    """What leaves a segment is stashed under its name and in its shape."""
    step = Step()
    first = step.call(VIEW, step.x, [2, 3])
    second = step.call(VIEW, first, [6], segment="b")
    turned = step.call(TURN, first)
    back = step.call(TURN, turned, segment="b")
    assert step.merged(second, back) == [second, back]
    assert second.args[0] is first
    assert back.args[0] is turned


def test_transposed_twice_is_returned_by_the_segment_that_makes_it() -> None:
    """A result belongs to a segment, so it is not replaced by a value of another one."""
    step = Step()
    value = step.call(torch.neg, step.x)
    back = step.call(TURN, step.call(TURN, value, segment="b"), segment="b")
    assert step.merged(back) == [back]
    assert step.calls == [torch.neg, TURN, TURN]


def test_no_weight_of_a_model_is_transposed_twice() -> None:
    """Autograd does so for the product of each backward pass, and for its gradient."""
    step = captured()
    run_passes(step, ["merge_views"])
    before = Counter(node.target for node in step.graph.nodes)
    step = captured()
    run_passes(step)
    after = Counter(node.target for node in step.graph.nodes)
    assert after[TURN] < before[TURN] / 2
    assert after[VIEW] < before[VIEW]
    assert all(
        after[target] == count for target, count in before.items() if target not in (TURN, VIEW)
    )
    for node in step.graph.find_nodes(op="call_function", target=TURN):
        assert node.args[0].target is not TURN


def test_views_of_transposed_values_keep_the_bits() -> None:
    """A view may see a transposed value only dimension by dimension."""

    class Heads(Regression):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            heads = x.view(-1, 2, 2).transpose(0, 1).view(2, -1, 1, 2).view(2, -1, 2)
            return super().forward(heads.transpose(0, 1).reshape(-1, 4).t().t(), y)

    model, batch = Heads(), random_batches(1, 2)[0]
    results, gradients = run_kernels(compile_model(model, batch, 1), model, batch)
    loss, expected = run_eagerly(model, batch, FP32, 1)
    assert torch.equal(results[0], loss)
    assert all(torch.equal(gradients[name], expected[name]) for name in expected)
