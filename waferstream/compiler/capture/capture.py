"""Capture one training or evaluation step of the user's program as a flat graph of aten ops.

The step function (forward, loss, ``loss.backward()``) runs once under fake tensors while make_fx
records it. Parameters become graph inputs in stream dtype, gradients and the step's return values
become outputs. No value is computed and no weight memory is needed.

The passes read these entries of each node's ``meta``:
    ``val``            fake tensor with shape and dtype
    ``stack_trace``    line of the user's ``forward`` that made the node
    ``seq_nr``         autograd's sequence number, which links a backward node to its forward node
    ``layer``          path of the innermost module that ran (forward nodes)
    ``backward``       whether autograd made the node
    ``recompute_region``  number of the call of a function whose values are recomputed, or None
    ``recompute_ckpt``  the same of a function whose results are kept, or None
    ``seed``           whether it is the gradient at which a backward pass starts
    ``loss_scale``     whether it is the dynamic loss scale

make_fx records these entries only with help: see ``waferstream.compiler.capture.annotations`` and
``capture_errors.recorded_lines``. The private modules of torch used here were checked with the
version that pyproject.toml requires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx import traceback as fx_traceback
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from waferstream.compiler.capture.annotations import (
    annotate_layers,
    marked_backward,
    recorded_layers,
)
from waferstream.compiler.capture.capture_errors import explain, recorded_lines
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.capture.host_reads import RefuseHostReads
from waferstream.compiler.capture.known_values import KnownValues, own_constants
from waferstream.compiler.capture.live_weights import (
    EarlierGradients,
    live_weights,
    refuse_views_of_weights,
)
from waferstream.compiler.capture.shape_rules import own_shape_rules
from waferstream.compiler.capture.traceable import traceable_forms
from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.compiler.capture.value_checks import ValueChecks
from waferstream.compiler.results.norm_results import NO_NORMS
from waferstream.compiler.results.step_state import StateUpdate
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.optimizer import averages_among
from waferstream.core.program.program import StepState, TensorSpec
from waferstream.numerics.precision import DTYPES, NAMES, StreamPrecision

Step = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
"""The user's step on the flat inputs of one micro-batch; returns its results, loss first."""

FlatStep = Callable[[list[torch.Tensor], list[torch.Tensor]], list[torch.Tensor]]
"""A step as a function of streamed weights and batch."""

Taken = Callable[[], Mapping[str, torch.Tensor | None]]
"""Returns the gradients with which a step that has run updates parameters, by their names."""


def capture(
    step: Step,
    model: nn.Module,
    inputs: Sequence[tuple[str, torch.Tensor]],
    precision: StreamPrecision,
    buffers: TracedBuffers | None = None,
    shapes: ShapeEnv | None = None,
    taken: Taken = dict,
) -> Captured:
    """Record ``step`` on one micro-batch.

    The gradient of the loss starts at 1; ``waferstream.compiler.compile`` sets the share of a
    micro-batch.

    Args:
        step: The user's step.
        model: The model whose parameters the step reads.
        inputs: Named example tensors of micro-batch shape; their values do not matter.
        precision: Dtypes of streamed weights and of computation.
        buffers: The buffers that the step may write; by default those of the model.
        shapes: Where given, the samples of a micro-batch are a symbol of this environment.
        taken: Asked for the gradients that updates take; others are those at the end of the step.

    Raises:
        ApplianceCompilationError: The step cannot be traced (the error names op, line and remedy),
            or the dtype of an input is not in DTYPES.
    """
    _check_dtypes(inputs)
    buffers = buffers or TracedBuffers({"": model})
    trained: list[str] = []
    replaced: list[str] = []
    earlier = EarlierGradients()
    flat_step = _flat_step(step, model, precision, buffers, trained, replaced, taken, earlier)
    module = _recorded(flat_step, model, inputs, precision, buffers, shapes, earlier)
    own_constants(module, lambda constant: constant not in buffers.names)
    (output,) = module.graph.find_nodes(op="output")
    outputs = output.args[0]
    num_results = len(outputs) - len(trained) - len(replaced)
    return Captured(
        module=module,
        parameters=masters_of(model),
        inputs=tuple(TensorSpec(n, tuple(t.shape), NAMES[t.dtype]) for n, t in inputs),
        trained=tuple(trained),
        stream_dtype=precision.stream,
        sums_in_fp32=precision.sums_in_fp32,
        rounding=precision.rounding if trained else "nearest",
        num_results=num_results,
        result_positions=tuple(range(num_results)),
        replaced=tuple(replaced),
        buffers=buffers,
        update=StateUpdate(StepState(), None),
        norms=NO_NORMS,
        carried=earlier.carried,
        left=earlier.left,
    )


def masters_of(model: nn.Module) -> tuple[TensorSpec, ...]:
    """Return the masters of a model's parameters, in registration order."""
    names: dict[torch.Tensor, str] = {each: name for name, each in model.named_parameters()}
    source = {each.average: each.source for each in averages_among(names)}
    return tuple(
        TensorSpec(name, tuple(each.shape), "float32", source.get(name, ""))
        for each, name in names.items()
    )


def _recorded(
    flat_step: FlatStep,
    model: nn.Module,
    inputs: Sequence[tuple[str, torch.Tensor]],
    precision: StreamPrecision,
    buffers: TracedBuffers,
    shapes: ShapeEnv | None,
    earlier: EarlierGradients,
) -> fx.GraphModule:
    """Run a step on tensors without memory, and return the annotated graph of its ops."""
    # Buffers and constants of the model are real tensors among fake ones, in the fake mode and in
    # make_fx, which both refuse them by default.
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=shapes)
    masters = [parameter for _, parameter in model.named_parameters()]
    with fake_mode:
        weights = [torch.empty(p.shape, dtype=precision.stream_dtype) for p in masters]
    batch = [_fake(fake_mode, name, tensor) for name, tensor in inputs]
    tracer = make_fx(flat_step, _allow_non_fake_inputs=True, record_stack_traces=True)
    with (
        fx_traceback.preserve_node_meta(),  # without it make_fx drops seq_nr and annotations
        recorded_layers(model),
        marked_backward(earlier.before_backward),
        recorded_lines(),
        _use_lazy_graph_module(True),  # the graph is read, its module never called
        own_shape_rules(),
        buffers.in_place(),
        fake_mode,
        explain(model),
    ):
        module = tracer(weights, batch)
    annotate_layers(module.graph)
    refuse_views_of_weights(module, model)
    return module


def _flat_step(
    step: Step,
    model: nn.Module,
    precision: StreamPrecision,
    buffers: TracedBuffers,
    trained: list[str],
    replaced: list[str],
    taken: Taken,
    earlier: EarlierGradients,
) -> FlatStep:
    """Return the step as a function of streamed weights and batch to a flat list of tensors.

    These are results, gradients, and new values of buffers that the step has assigned. Its run
    appends the names of the parameters that receive a gradient to ``trained``, and those of the
    buffers to ``replaced``.
    """
    names = [name for name, _ in model.named_parameters()]

    def flat_step(weights: list[torch.Tensor], batch: list[torch.Tensor]) -> list[torch.Tensor]:
        streamed = dict(zip(names, weights, strict=True))
        checks = ValueChecks()
        with (
            live_weights(model, streamed, precision) as live,
            RefuseHostReads(buffers),
            KnownValues(buffers.names),
            traceable_forms(),
            checks.noting(),
        ):
            earlier.begin(live)
            results = step(batch)
            earlier.end()
        results = checks.made(results)
        finals = buffers.replaced()
        replaced.extend(finals)
        at_the_end = {name: live[name].grad for name in names}
        found = {**at_the_end, **taken()}
        gradients = {name: value for name in names if (value := found[name]) is not None}
        trained.extend(gradients)
        return [
            *(result.detach() for result in results),
            *gradients.values(),
            *finals.values(),
        ]

    return flat_step


def _check_dtypes(inputs: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Raise for an input whose dtype cannot be sent to a system."""
    for name, tensor in inputs:
        if tensor.dtype not in NAMES:
            raise ApplianceCompilationError(
                "an input of the step must have a dtype that can be sent to a system",
                code="input-dtype-unsupported",
                where=f"{name}, of shape {tuple(tensor.shape)}",
                value=tensor.dtype,
                rule=f"one of {', '.join(DTYPES)}",
                remedy="convert it in the input function, unsigned integers with .long()",
            )


def _fake(mode: FakeTensorMode, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without memory; if the mode has shapes, its samples are their symbol."""
    if mode.shape_env is None:
        return mode.from_tensor(tensor)
    # Extents of one hint are one symbol (DUCK), so that all inputs have the same samples.
    dims = [DimDynamic.DUCK] + [DimDynamic.STATIC] * (tensor.ndim - 1)
    context: Any = StatelessSymbolicContext(dynamic_sizes=dims)
    return mode.from_tensor(tensor, source=ConstantSource(name), symbolic_context=context)
