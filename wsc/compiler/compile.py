"""From a captured step to a program that a cluster can run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from wsc.compiler.artifact import ArtifactCache
from wsc.compiler.capture import Captured, Step, capture
from wsc.compiler.compiled import Compiled
from wsc.compiler.passes import run_passes
from wsc.compiler.passes.recompute import recompute_layers
from wsc.compiler.precision import StreamPrecision
from wsc.compiler.segments import build_segments
from wsc.core.program import Program
from wsc.version import VERSION


@dataclass(frozen=True)
class CompileRequest:
    """Everything that decides the result of a compile."""

    precision: StreamPrecision
    micro_batch_size: int
    num_micro_batches: int
    target: str  # describes the cluster that the artifact is for
    disabled_passes: tuple[str, ...] = ()
    recomputed_layers: tuple[str, ...] = ()  # whose internals are not kept for the backward pass


def compile_step(
    step: Step,
    model: nn.Module,
    inputs: Sequence[tuple[str, torch.Tensor]],
    request: CompileRequest,
    cache: ArtifactCache | None = None,
) -> tuple[Compiled, bool]:
    """Capture and compile one step; also says whether the artifact came from the cache.

    A step that calls ``backward`` becomes a training program, any other an evaluation program.
    Raises ApplianceCompilationError for a step that cannot be captured or has no kernels.
    """
    captured = capture(step, model, inputs, request.precision, request.num_micro_batches)
    digest = step_digest(captured, request)
    if cache is not None and (found := cache.load(digest)) is not None:
        return found, True
    compiled = _lower(captured, request, digest)
    if cache is not None:
        cache.store(compiled)
    return compiled, False


def _lower(captured: Captured, request: CompileRequest, digest: str) -> Compiled:
    run_passes(captured, request.disabled_passes)
    recompute_layers(captured, request.recomputed_layers)
    segments, kernels = build_segments(captured)
    program = Program(
        mode="train" if captured.trained else "eval",
        digest=digest,
        parameters=captured.parameters,
        stream_dtype=request.precision.stream,
        inputs=captured.inputs,
        num_results=len(captured.results),
        segments=segments,
        micro_batch_size=request.micro_batch_size,
        num_micro_batches=request.num_micro_batches,
    )
    return Compiled(program, kernels)


def step_digest(captured: Captured, request: CompileRequest) -> str:
    """``cs_<digits>``: the artifact of this graph, its layers, precision, cluster, version."""
    digest = hashlib.sha256()
    for part in (VERSION, torch.__version__, request, captured.parameters, captured.inputs):
        digest.update(repr(part).encode())
    for node in captured.graph.nodes:
        digest.update(node.format_node(include_tensor_metadata=False).encode())
        digest.update(repr((node.meta["layer"], node.meta["backward"])).encode())
    for name, constant in sorted(captured.module.named_buffers()):
        digest.update(name.encode())
        digest.update(constant.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return f"cs_{int.from_bytes(digest.digest()[:8], 'little')}"
