"""Marks that a traced step leaves on its nodes: recomputed ops, the loss scale, updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import fx
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

RECOMPUTE_KEYS = {
    "recompute_region": "waferstream_recompute_region",
    "recompute_ckpt": "waferstream_recompute_checkpoint",
}
"""Keys of the custom annotations of ops that a user's program marks, by the vendor's names."""

UPDATE_KEY = "waferstream_update"
"""Key of the ``meta`` of the last node before the update of some parameters: their names."""

TAKEN_KEY = "waferstream_taken"
"""Key of the ``meta`` of a gradient that updates take: the names of the parameters."""

LIMIT_KEY = "waferstream_limit"
"""Key of the ``meta`` of the last node before gradients are clipped, or unscaled."""

PROGRAM_KEY = "waferstream_program"
"""Key of the ``meta`` of a node of a backward pass: the line of the program that made it, of a hook
or of a ``torch.autograd.Function``; None for autograd's own formulas."""

LOSS_SCALE_KEY = "waferstream_loss_scale"
"""Key of the custom annotation of a dynamic loss scale."""


@contextmanager
def marked_for_recompute(mark: str, call: int) -> Iterator[None]:
    """Mark the forward ops of one call of a user's function.

    Args:
        mark: ``recompute_region``, whose values are made again in the backward pass, or
            ``recompute_ckpt``, whose results are kept all the same.
        call: A number of the call.
    """
    with fx_traceback.annotate({RECOMPUTE_KEYS[mark]: call}):
        yield


def loss_scale_placeholder() -> torch.Tensor:
    """Return a marked fp32 scalar that stands for the dynamic loss scale, an input of each step."""
    with fx_traceback.annotate({LOSS_SCALE_KEY: True}):
        return torch.full((), 1.0, dtype=torch.float32)


def mark_update(gradients: Mapping[str, torch.Tensor]) -> None:
    """Note that parameters are updated by gradients after what the trace has recorded so far."""
    if (graph := running_graph()) is None:
        return
    meta = next(iter(reversed(graph.nodes))).meta
    meta[UPDATE_KEY] = (*meta.get(UPDATE_KEY, ()), *gradients)
    for name, gradient in gradients.items():
        meta = node_of(gradient).meta
        meta[TAKEN_KEY] = (*meta.get(TAKEN_KEY, ()), name)


def mark_limit() -> None:
    """Note that gradients are clipped or unscaled after what the trace has recorded so far."""
    if (graph := running_graph()) is not None:
        next(iter(reversed(graph.nodes))).meta[LIMIT_KEY] = True


def running_graph() -> fx.Graph | None:
    """Return the graph that is being recorded, if one is."""
    mode = get_proxy_mode()
    return None if mode is None else mode.tracer.graph


def node_of(traced: torch.Tensor) -> fx.Node:
    """Return the node of a tensor in the running trace."""
    mode = get_proxy_mode()
    assert mode is not None, "a graph is being recorded"
    node: fx.Node = get_proxy_slot(traced, mode.tracer).proxy.node
    return node
