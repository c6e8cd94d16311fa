"""Storages of captured values: sharing, in-place writes, and internals of a layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from waferstream.compiler.storages import (
    internals,
    needed_for,
    overwritten,
    storages_of,
    tensors_of,
)


def nodes_of(function: Callable[..., object], *shapes: tuple[int, ...]) -> dict[str, fx.Node]:
    """Return the nodes of a traced function by name."""
    operands = [torch.ones(shape) for shape in shapes]
    graph = make_fx(function, tracing_mode="fake")(*operands).graph
    return {node.name: node for node in graph.nodes}


def test_storages_of_counts_views_once() -> None:
    """A transpose and a slice have the storage of their operand."""
    nodes = nodes_of(lambda x: (x.exp().t(), x.exp()[0]), (3, 4))
    exp, view = nodes["exp"], nodes["t"]
    assert storages_of([exp, view]) == storages_of([exp])
    assert list(storages_of([exp]).values()) == [3 * 4 * 4]
    assert len(storages_of([exp, nodes["exp_1"]])) == 2


def test_tensors_of_an_op_with_several_results() -> None:
    """All of them, in order."""
    nodes = nodes_of(lambda x: torch.var_mean(x, dim=0), (3, 4))
    assert [tuple(tensor.shape) for tensor in tensors_of(nodes["var_mean"])] == [(4,), (4,)]


def test_overwritten_is_the_operand_of_an_in_place_op() -> None:
    """And None for an op that makes a new tensor."""
    nodes = nodes_of(lambda x: x.clone().mul_(2.0), (3,))
    assert overwritten(nodes["mul_"]) is nodes["clone"]
    assert overwritten(nodes["clone"]) is None


def test_internals_are_read_by_the_own_backward_pass_only() -> None:
    """A value that another layer reads, also through a view, is no internal."""

    def step(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own, shared = x.exp(), x.sin()
        return own * 2, shared.t() + 1, shared * 3

    nodes = nodes_of(step, (3, 3))
    forward = [nodes["exp"], nodes["sin"], nodes["t"]]
    assert internals(forward, [nodes["mul"], nodes["add"], nodes["mul_1"]]) == set(forward)
    assert internals(forward, [nodes["mul"], nodes["add"]]) == {nodes["exp"]}


def test_needed_for_follows_operands_backwards() -> None:
    """Within the given nodes only."""
    nodes = nodes_of(lambda x: (x.exp().sin().cos(), x.tan()), (3,))
    chain = [nodes[name] for name in ("exp", "sin", "cos", "tan")]
    assert needed_for([nodes["cos"]], chain) == set(chain[:3])
    assert needed_for([nodes["cos"]], chain[1:]) == set(chain[1:3])
