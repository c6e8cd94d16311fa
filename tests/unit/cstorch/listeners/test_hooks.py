"""Hooks on tensors of the traced model and on results."""

from __future__ import annotations

import torch

import cstorch
from cstorch.listeners.hooks import (
    after_transfer,
    call_with_outlines,
    register_traced_tensor_hook,
)
from tests.support.programs.cstorch_program import evaluation_step, executor, losses, model_of


def test_hooks_see_what_modules_return(backend: cstorch.Backend) -> None:
    """A closure in a hook receives a value that is computed in the step."""
    names, sums = [], []

    @cstorch.step_closure
    def note(total: torch.Tensor) -> None:
        sums.append(total.item())

    def hook(tensor: torch.Tensor, name: str) -> None:
        names.append(name)
        note(tensor.float().square().sum())

    step = evaluation_step(backend)
    handle = register_traced_tensor_hook(hook)
    try:
        losses(step, executor(1))
    finally:
        handle.remove()
    inside = [
        path for path, module in model_of(backend).named_modules() if not [*module.children()]
    ]
    called = dict.fromkeys(name.removesuffix(".fwd") for name in names)  # in each recording
    assert list(called) == inside
    assert len(sums) == len(inside)
    assert min(sums) > 0


def test_hooks_see_results_before_closures(backend: cstorch.Backend) -> None:
    seen: list[float] = []
    handle = after_transfer.register(lambda tensor, _name: seen.append(tensor.item()))
    try:
        values = losses(evaluation_step(backend), executor(2))
    finally:
        handle.remove()
    assert seen == values
    losses(evaluation_step(backend), executor(1))
    assert seen == values


def test_outlines_of_tensors_of_any_rank_are_heard_again() -> None:
    heard = []
    handle = register_traced_tensor_hook(
        lambda tensor, name: heard.append((name, tensor.shape, tensor.dtype))
    )
    try:
        call_with_outlines([("logits", [2, 3], "float32"), ("scale", [], "bfloat16")])
    finally:
        handle.remove()
    assert heard == [("logits", (2, 3), torch.float32), ("scale", (), torch.bfloat16)]
