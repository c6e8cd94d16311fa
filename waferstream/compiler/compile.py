"""Compile a step of the user's program to a program that a cluster runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from waferstream.compiler.artifact import ArtifactCache
from waferstream.compiler.capture.annotations import recompute_marks
from waferstream.compiler.capture.capture import Step
from waferstream.compiler.capture.captured import Captured, separated
from waferstream.compiler.capture.known_values import own_constants
from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.compiler.compiled import Compiled, program_digest
from waferstream.compiler.derivation.recording import Recording, record
from waferstream.compiler.derivation.step_inputs import MARK, fill_from_input, replace_marked
from waferstream.compiler.lower_half import lowering_of
from waferstream.compiler.passes.pipeline import run_passes
from waferstream.compiler.passes.rematerialize import recompute_layers, recompute_regions
from waferstream.compiler.results.shares import Shared, share_batch
from waferstream.compiler.segments import build_segments
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.optimizer import LOSS_SCALE_INPUT
from waferstream.core.program.label_means import SEED_INPUT
from waferstream.core.program.micro_batches import SETTING
from waferstream.core.program.program import Program, ProgramKind, TensorResult
from waferstream.core.roles.installation import SizedKernels
from waferstream.numerics.precision import StreamPrecision
from waferstream.version import VERSION


@dataclass(frozen=True)
class CompileRequest:
    """Arguments that determine the result of a compile, in addition to the step itself."""

    precision: StreamPrecision
    micro_batch_size: int
    num_micro_batches: int
    target: str  # description of the cluster that the artifact is for
    disabled_passes: tuple[str, ...] = ()
    recomputed_layers: tuple[str, ...] = ()  # run again in the backward pass
    num_short: int = 0  # micro-batches with one sample less


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

    def of_size(size: int) -> Recording:
        resized = [(name, tensor.new_empty(size, *tensor.shape[1:])) for name, tensor in inputs]
        return record(step, model, resized, request.precision, buffers)

    several = request.num_short > 0
    recording = record(step, model, inputs, request.precision, buffers, for_all_sizes=several)
    return compile_recorded(replace(recording, of_size=of_size), request, cache)


def compile_recorded(
    recording: Recording, request: CompileRequest, cache: ArtifactCache | None = None
) -> tuple[Compiled, bool]:
    """Compile a recorded step at the size of the request; results and errors as above."""
    steps = _steps_of(recording, request)
    step = step_digest(steps, request)
    digest = program_digest(step, request.target)
    if cache is not None and (found := cache.load(digest)) is not None:
        return found, True
    compiled = replace(_lower(steps[0], request, digest), step_digest=step)
    for shared in steps[1:]:
        compiled = replace(compiled, short=_sized_kernels(shared, request, compiled.program))
    if cache is not None:
        cache.store(compiled)
    return compiled, False


def recorded_digest(recording: Recording, request: CompileRequest) -> str:
    """Return the digest of the program that a recorded step would be compiled to."""
    return program_digest(step_digest(_steps_of(recording, request), request), request.target)


def _steps_of(recording: Recording, request: CompileRequest) -> list[Shared]:
    """Return a recorded step at the sizes of its micro-batches, which add up to the batch."""
    size, total = request.micro_batch_size, request.num_micro_batches
    batch_size = size * total - request.num_short
    sizes = (size, size - 1) if request.num_short else (size,)
    return [_shared(recording, each, batch_size, request) for each in sizes]


def _shared(recording: Recording, size: int, batch_size: int, request: CompileRequest) -> Shared:
    """Return a recorded step at one size of its micro-batches."""
    of_size = recording.of_size

    def again() -> Captured:
        assert of_size is not None, "so the whole batch was recorded"
        return separated(of_size(size).at(size))

    try:
        part = separated(recording.at(size))
        if size == batch_size:
            return Shared(part)
        is_known = recording.shapes is not None or of_size is None
        whole = separated(recording.at(batch_size))
        return share_batch(part, whole, None if is_known else again)
    except ApplianceCompilationError:
        run_passes(separated(recording.at(size)), request.disabled_passes)  # may say more
        raise


def _lower(shared: Shared, request: CompileRequest, digest: str) -> Compiled:
    """Run the passes over a captured step and cut it into segments."""
    captured = shared.captured
    own_constants(captured.module, captured.buffers.names.__contains__)
    if any(mean.is_loss for mean in shared.label_means):
        fill_from_input(captured, "seed", SEED_INPUT)
    fill_from_input(captured, "loss_scale", LOSS_SCALE_INPUT)
    step_inputs = replace_marked(captured)
    run_passes(captured, request.disabled_passes)
    recompute_layers(captured, request.recomputed_layers)
    recompute_regions(captured)
    segments, kernels = build_segments(captured)
    if not segments:
        raise ApplianceCompilationError(
            "the traced step computes nothing",
            code="step-without-ops",
            rule="a step computes what it returns, or gradients",
            remedy="call the compiled model in it, and return the loss",
        )
    program = Program(
        kind=ProgramKind.TRAIN if captured.trained else ProgramKind.EVAL,
        digest=digest,
        parameters=captured.parameters,
        stream_dtype=request.precision.stream,
        inputs=captured.inputs,
        num_results=captured.num_results,
        segments=segments,
        micro_batch_size=request.micro_batch_size,
        num_micro_batches=request.num_micro_batches,
        label_means=shared.label_means,
        tensor_results=tuple(_tensor_results(captured)),
        state=captured.update.state,
        num_short=request.num_short,
        totals=shared.totals,
        num_cut=captured.num_cut,
        whole=captured.whole,
        guards=tuple(place for _, place in shared.guards),
        norms=captured.norms.results,
        rounding=captured.rounding,
        step_inputs=step_inputs,
        batch_draws=tuple(sorted(captured.batch_draws)),
        gradient_dtype=request.precision.compute if lowering_of(captured) is None else "float32",
    )
    return Compiled(
        program,
        kernels,
        label_counts=shared.counts,
        state_update=captured.update.kernel,
        norms=captured.norms.kernel,
        whole=shared.values,
        guards=tuple(kernel for kernel, _ in shared.guards),
        gradient_kernels=captured.gradient_kernels,
    )


def _tensor_results(captured: Captured) -> Iterator[TensorResult]:
    """Yield the results that are no scalars.

    A result has a row for each sample if its first dimension is as large as the micro-batch.
    """
    for position, node in captured.results.items():
        shape = node.meta["val"].shape
        if len(shape) and position < captured.num_results:
            is_row = shape[0] == captured.inputs[0].shape[0]
            yield TensorResult(position, "samples" if is_row else "mean")


def _sized_kernels(shared: Shared, request: CompileRequest, like: Program) -> SizedKernels:
    """Lower the step of a micro-batch with one sample less than those of a program."""
    compiled = _lower(shared, request, like.digest)
    program = compiled.program
    if _agreed(program) != _agreed(like):
        raise ApplianceCompilationError(
            "the ops of a step depend on the micro-batch size",
            code="ops-depend-on-micro-batch-size",
            value=f"{request.micro_batch_size} and {request.micro_batch_size - 1} samples",
            remedy=f"set {SETTING} to an integer that divides the batch",
        )
    return SizedKernels(
        program.segments, compiled.kernels, compiled.label_counts, compiled.state_update
    )


def _agreed(program: Program) -> tuple[object, ...]:
    """Return the parts of a program in which the micro-batches of a round must agree."""
    streams = [(s.layer, s.phase, {*s.weights}, {*s.gradients}) for s in program.segments]
    state = program.state
    own = (state.reads, state.writes, state.arguments, state.results, state.means)
    buffers = (*own, len(state.contributions))
    values = (len(program.inputs), program.whole, program.label_means, program.totals)
    return streams, program.tensor_results, values, buffers


def step_digest(steps: Sequence[Shared], request: CompileRequest) -> str:
    """Return a digest over the graphs of a step, one for each size of its micro-batches.

    Layers, constants, versions, and the request but for its target are part of it.
    """
    digest = hashlib.sha256()
    for part in (VERSION, torch.__version__, replace(request, target="")):
        digest.update(repr(part).encode())
    for shared in steps:
        captured = shared.captured
        calls: dict[int | None, int] = {None: -1}  # numbers that do not depend on earlier traces
        digest.update(repr((captured.parameters, captured.inputs)).encode())
        for node in captured.graph.nodes:
            digest.update(node.format_node(include_tensor_metadata=False).encode())
            digest.update(repr((node.meta["layer"], node.meta["backward"])).encode())
            if (marks := recompute_marks(node)) != (None, None):
                digest.update(repr([calls.setdefault(mark, len(calls)) for mark in marks]).encode())
            if node.meta["loss_scale"]:
                digest.update(b"loss scale")
            if MARK in node.meta:
                digest.update(repr(node.meta[MARK]).encode())
        if (update := captured.update).kernel is not None or update.state.reads:
            digest.update(repr((update.state, update.kernel and update.kernel.text)).encode())
        if shared.totals or shared.values is not None or shared.guards:
            texts = [shared.values and shared.values.text, *(k.text for k, _ in shared.guards)]
            digest.update(repr((shared.totals, texts)).encode())
        if captured.norms.kernel is not None:
            digest.update(repr((captured.norms.results, captured.norms.kernel.text)).encode())
        for kernel in captured.gradient_kernels:
            digest.update(repr((kernel.parameter, kernel.source.text)).encode())
        for name, constant in sorted(captured.module.named_buffers()):
            digest.update(name.encode())
            flat = constant.detach().contiguous().view(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
