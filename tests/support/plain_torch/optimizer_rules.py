"""Comparison of a rule of MemoryX with an optimizer of torch, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from memoryx.optim.rule import Hyper, Parameter, Rule, Shape, State, rule_named

NUM_STEPS = 5


def views_at_odd_offsets(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same values as views of one flat buffer, each after a gap of one element."""
    flat = torch.full((sum(tensor.numel() + 1 for tensor in tensors),), 7.0)
    views, offset = [], 1
    for tensor in tensors:
        view = flat[offset : offset + tensor.numel()].view(tensor.shape)
        views.append(view.copy_(tensor))
        offset += tensor.numel() + 1
    return views


def assert_equals_torch(
    name: str,
    make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer],
    hyper: Mapping[str, Any],
    shapes: Sequence[Shape],
    num_steps: int = NUM_STEPS,
) -> None:
    """Assert that a rule gives the masters and states of torch; gradients are only read."""
    generator = torch.Generator().manual_seed(0)
    initial = [torch.randn(shape, generator=generator) for shape in shapes]
    parameters = [torch.nn.Parameter(tensor.clone()) for tensor in initial]
    theirs, rule = make(parameters), rule_named(name)
    masters = views_at_odd_offsets(initial)
    states = [init_state(rule, shape, hyper) for shape in shapes]
    for step in range(1, num_steps + 1):
        gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        theirs.step()
        ours = views_at_odd_offsets(gradients)
        rule.update([*map(Parameter, masters, ours, states)], hyper, step)
        assert all(map(torch.equal, ours, gradients))
        assert all(map(torch.equal, masters, parameters)), f"step {step}"
    for parameter, state in zip(parameters, states, strict=True):
        assert all(torch.equal(theirs.state[parameter][key], state[key]) for key in state)


def init_state(rule: Rule, shape: Shape, hyper: Hyper) -> State:
    """Return the state of a parameter before the first update."""
    return {
        name: torch.full(size, rule.initial_value(name, hyper))
        for name, size in rule.state_shapes(shape, hyper).items()
    }
