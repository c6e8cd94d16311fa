"""Annotations of a traced step: layer and direction of each node, and seeds.

make_fx records what the passes read of a node (``waferstream.compiler.capture.capture``) only with
help: custom annotations of fx, which new nodes inherit, and hooks of AOTAutograd. The private
modules of torch used here were checked with the version that pyproject.toml requires.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import fx, nn
from torch._functorch._aot_autograd import logging_utils
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn.modules import module as nn_module

from waferstream.compiler.capture.capture_errors import blame_line, line_since
from waferstream.compiler.capture.node_marks import LOSS_SCALE_KEY, PROGRAM_KEY, RECOMPUTE_KEYS
from waferstream.core.errors import ApplianceCompilationError

_LAYER_KEY = "waferstream_layer"
"""Key of a node's custom annotations under which its module path is recorded."""

_SEED_KEY = "waferstream_seed"
"""Key of the custom annotation of the gradient at which a backward pass starts."""


@contextmanager
def recorded_layers(model: nn.Module) -> Iterator[None]:
    """Record in every forward node the path of the innermost module that was running.

    make_fx does not record which module runs. Module hooks enter and leave an annotation of fx,
    which new nodes inherit.
    """
    paths = {module: path for path, module in model.named_modules() if path}
    running: list[Any] = []

    def enter(module: nn.Module, _args: object) -> None:
        annotation = fx_traceback.annotate({_LAYER_KEY: paths.get(module, "")})
        annotation.__enter__()
        running.append(annotation)

    def leave(_module: nn.Module, _args: object, _output: object) -> None:
        running.pop().__exit__(None, None, None)

    handles = [
        nn_module.register_module_forward_pre_hook(enter),
        nn_module.register_module_forward_hook(leave),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        # A forward that raised has skipped its hook: leave its annotation, which is global state.
        while running:
            running.pop().__exit__(None, None, None)


@contextmanager
def marked_backward(before: Callable[[], None]) -> Iterator[None]:
    """Mark the gradient at which ``loss.backward()`` starts, and link backward to forward nodes.

    ``before`` is called before each pass.

    ``Tensor.backward`` is replaced while the step is traced, since the user's step calls it and
    takes no argument for the first gradient.
    """

    def backward(
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        if loss.numel() != 1 or gradient is not None or create_graph or inputs is not None:
            raise ApplianceCompilationError(
                "backward() inside a traced step must have a scalar loss and no other argument",
                code="backward-not-of-scalar-loss",
                value=f"loss of shape {tuple(loss.shape)}",
                remedy="reduce the loss to a scalar, then call loss.backward()",
            )
        if loss.grad_fn is not None:
            # Without these hooks of AOTAutograd a backward node has the sequence number of
            # the latest forward op and the stack trace of this call. They set seq_nr, stack trace
            # and the backward mark from the autograd node whose formula is about to run.
            logging_utils.setup_stacktrace_preservation_hooks([loss.grad_fn])
        before()
        with fx_traceback.annotate({_SEED_KEY: True}):
            seed = torch.full_like(loss, 1.0)
        try:
            with _marked_program(sys._getframe()):
                torch.autograd.backward(loss, seed, retain_graph=retain_graph)
        except Exception as error:
            logging_utils.callback_set = False  # or no later pass would end its marks
            blame_line(error, _running_line())
            raise

    with mock.patch.object(torch.Tensor, "backward", backward):
        yield


@contextmanager
def _marked_program(caller: FrameType) -> Iterator[None]:
    """Mark the nodes that Python code of the program makes below a frame, with its line."""
    create = fx.proxy.TracerBase.create_node

    def create_node(tracer: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = create(tracer, *args, **kwargs)
        node.meta[PROGRAM_KEY] = line_since(caller)
        return node

    with mock.patch.object(fx.proxy.TracerBase, "create_node", create_node):
        yield


def annotate_layers(graph: fx.Graph) -> None:
    """Set each node's layer and direction under the names that the passes read.

    A backward node gets the line of the forward node whose gradient it computes.
    """
    lines = _forward_lines(graph)
    for node in graph.nodes:
        sequence = node.meta.get("seq_nr")
        if _is_backward(node) and not node.meta.get("is_gradient_acc") and sequence in lines:
            node.meta["stack_trace"] = lines[sequence]
        node.meta["layer"] = node.meta.get("custom", {}).get(_LAYER_KEY, "")
        node.meta["backward"] = _is_backward(node)
        for mark, key in RECOMPUTE_KEYS.items():
            node.meta[mark] = node.meta.get("custom", {}).get(key)
        node.meta["seed"] = _SEED_KEY in node.meta.get("custom", {})
        node.meta["loss_scale"] = LOSS_SCALE_KEY in node.meta.get("custom", {})


def recompute_marks(node: fx.Node) -> tuple[int | None, int | None]:
    """Return the calls of a marked region and of a marked checkpoint that made an op."""
    return node.meta.get("recompute_region"), node.meta.get("recompute_ckpt")


def _is_backward(node: fx.Node) -> bool:
    return bool(node.meta.get("autograd_backward"))


def _forward_lines(graph: fx.Graph) -> dict[int, str]:
    """Return the stack trace of each forward op by its sequence number.

    Ops without a gradient have the number of the op before them, so the first node counts.
    """
    lines: dict[int, str] = {}
    for node in graph.nodes:
        line = node.meta.get("stack_trace")
        if line and "seq_nr" in node.meta and not _is_backward(node):
            lines.setdefault(node.meta["seq_nr"], line)
    return lines


def _running_line() -> str | None:
    """Return the stack trace of the forward op whose gradient autograd computes now, if known."""
    mode = get_proxy_mode()
    sequences = fx_traceback.current_meta.get("grad_fn_seq_nr")
    if mode is None or not sequences:
        return None
    return _forward_lines(mode.tracer.graph).get(sequences[-1])
