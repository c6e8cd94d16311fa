"""Compile a step of the user's program to a program that a cluster runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from wsc.compiler.artifact import ArtifactCache
from wsc.compiler.capture import Captured, Step, capture
from wsc.compiler.compiled import Compiled
from wsc.compiler.label_means import weigh_label_means
from wsc.compiler.passes.inputs import fill_from_input
from wsc.compiler.passes.pipeline import run_passes
from wsc.compiler.passes.rematerialize import recompute_layers
from wsc.compiler.precision import StreamPrecision
from wsc.compiler.segments import build_segments
from wsc.compiler.traced_buffers import TracedBuffers
from wsc.core.loss_scale import LOSS_SCALE_INPUT
from wsc.core.program import Program, TensorResult
from wsc.version import VERSION


@dataclass(frozen=True)
class CompileRequest:
    """Arguments that determine the result of a compile, in addition to the step itself."""

    precision: StreamPrecision
    micro_batch_size: int
    num_micro_batches: int
    target: str  # description of the cluster that the artifact is for
    disabled_passes: tuple[str, ...] = ()
    recomputed_layers: tuple[str, ...] = ()  # run again in the backward pass


def compile_step(
    step: Step,
    model: nn.Module,
    inputs: Sequence[tuple[str, torch.Tensor]],
    request: CompileRequest,
    cache: ArtifactCache | None = None,
    buffers: TracedBuffers | None = None,
) -> tuple[Compiled, bool]:
    """Capture and compile one step.

    A step that calls ``backward`` becomes a training program, any other an evaluation program.

    Args:
        step: The user's step on the inputs of one micro-batch.
        model: The model whose parameters become streamed weights.
        inputs: Named example tensors of micro-batch shape; their values do not matter.
        request: All other arguments.
        cache: Where artifacts are looked up and stored.
        buffers: The buffers that the step may write; by default those of the model.

    Returns:
        The compiled step, and whether it came from the cache.

    Raises:
        ApplianceCompilationError: The step cannot be captured, or an op has no kernel.
    """
    captured = capture(step, model, inputs, request.precision, request.num_micro_batches, buffers)
    digest = step_digest(captured, request)
    if cache is not None and (found := cache.load(digest)) is not None:
        return found, True
    compiled = _lower(captured, request, digest)
    if cache is not None:
        cache.store(compiled)
    return compiled, False


def _lower(captured: Captured, request: CompileRequest, digest: str) -> Compiled:
    """Run the passes over a captured step and cut it into segments."""
    label_means, label_counts = weigh_label_means(captured)
    fill_from_input(captured, "loss_scale", LOSS_SCALE_INPUT)
    run_passes(captured, request.disabled_passes)
    recompute_layers(captured, request.recomputed_layers)
    segments, kernels = build_segments(captured)
    program = Program(
        mode="train" if captured.trained else "eval",
        digest=digest,
        parameters=captured.parameters,
        stream_dtype=request.precision.stream,
        inputs=captured.inputs,
        num_results=captured.num_results,
        segments=segments,
        micro_batch_size=request.micro_batch_size,
        num_micro_batches=request.num_micro_batches,
        label_means=label_means,
        tensor_results=tuple(_tensor_results(captured, request.micro_batch_size)),
        state=captured.update.state,
    )
    return Compiled(program, kernels, label_counts, captured.update.kernel)


def _tensor_results(captured: Captured, micro_batch_size: int) -> Iterator[TensorResult]:
    """Yield the results that are no scalars.

    A result has a row for each sample if its first dimension is as large as the micro-batch.
    """
    for position, node in captured.results.items():
        shape = node.meta["val"].shape
        if len(shape) and position < captured.num_results:
            yield TensorResult(position, "samples" if shape[0] == micro_batch_size else "mean")


def step_digest(captured: Captured, request: CompileRequest) -> str:
    """Return ``cs_<digits>`` over the graph, its layers, constants, request and versions."""
    digest = hashlib.sha256()
    for part in (VERSION, torch.__version__, request, captured.parameters, captured.inputs):
        digest.update(repr(part).encode())
    for node in captured.graph.nodes:
        digest.update(node.format_node(include_tensor_metadata=False).encode())
        digest.update(repr((node.meta["layer"], node.meta["backward"])).encode())
        if node.meta["loss_scale"]:
            digest.update(b"loss scale")
    if (update := captured.update).kernel is not None or update.state.reads:
        digest.update(repr((update.state, update.kernel and update.kernel.text)).encode())
    for name, constant in sorted(captured.module.named_buffers()):
        digest.update(name.encode())
        digest.update(constant.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return f"cs_{int.from_bytes(digest.digest()[:8], 'little')}"
