"""The workload of a GPU cluster, read from a captured step: of any decoder, whoever wrote it.

Sizes follow from the ops: attention has heads, tokens and layers, and the output projection leads
from the hidden size to the vocabulary. It is the product outside of the layers whose weights have
the shape of an embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from waferstream.baselines.gpu.workload import Workload
from waferstream.core.program.program import Program
from waferstream.core.program.segment import OpWork, Segment

_LEAST_USE = 0.8
"""Share of the weights that every token must be multiplied with: fewer are those of experts."""


def workload_of(program: Program) -> Workload | None:
    """Return the workload of a training step; None unless it is that of a dense transformer.

    That looks tokens up in an embedding, has attention and logits over the vocabulary, and
    multiplies every token with all of its matrices.
    """
    attentions = {
        segment.layer: op
        for segment in program.segments
        for op in segment.work
        if segment.phase == "forward" and _is_attention(op)
    }
    outside = [segment for segment in program.segments if segment.layer not in attentions]
    head = _output_projection(program, outside)
    if not attentions or head is None:
        return None
    *_, hidden, vocabulary = head.shape
    tokens = max(op.shape[1] for op in attentions.values())
    vocabularies = [
        spec for spec in program.parameters if sorted(spec.shape) == sorted((hidden, vocabulary))
    ]
    parameters = program.num_elements(spec.name for spec in program.parameters)
    positions = _learned_positions(program, outside, tokens, hidden, vocabulary)
    in_matrices = parameters - positions - hidden * vocabulary * (len(vocabularies) - 1)
    if _weights_of_a_token(program, tokens) < _LEAST_USE * in_matrices:
        return None
    return Workload(
        parameters=parameters,
        hidden=hidden,
        layers=len(attentions),
        heads=max(op.shape[0] for op in attentions.values()) // program.micro_batch_size,
        seq_len=tokens,
        vocab=vocabulary,
        tied_embeddings=len(vocabularies) == 1,
        learned_positions=positions > 0,
        layer_ops=_ops(segment for segment in program.segments if segment.layer in attentions)
        // len(attentions),
    )


def _is_attention(op: OpWork) -> bool:
    return op.kind == "attention" or (op.kind == "matmul" and op.makes_scores)


def _output_projection(program: Program, outside: Sequence[Segment]) -> OpWork | None:
    """Return the product that computes logits; None if none has the shape of an embedding."""
    gathered = {
        tuple(sorted(program.parameter[name].shape))
        for segment in outside
        if any(op.kind == "gather" and op.streams for op in segment.work)
        for name in segment.weights
    }
    alike = (op for op in _products(outside) if tuple(sorted(op.shape[-2:])) in gathered)
    return max(alike, key=lambda op: op.shape[-1], default=None)


def _products(segments: Iterable[Segment]) -> list[OpWork]:
    """Return the matrix products with weights of the forward pass."""
    return [
        op
        for segment in segments
        if segment.phase == "forward"
        for op in segment.work
        if op.kind == "matmul" and op.streams
    ]


def _weights_of_a_token(program: Program, tokens: int) -> float:
    """Return the number of weights that a token is multiplied with in the forward pass."""
    flops = sum(op.flops for op in _products(program.segments))
    return flops / 2 / (tokens * program.micro_batch_size)


def _learned_positions(
    program: Program, outside: Sequence[Segment], tokens: int, hidden: int, vocabulary: int
) -> int:
    """Return the elements of vectors of positions, of which each has one."""
    names = {name for segment in outside for name in segment.weights}
    shapes = (program.parameter[name].shape for name in names)
    return sum(
        rows * columns
        for rows, columns in (shape for shape in shapes if len(shape) == 2)
        if columns == hidden and tokens <= rows != vocabulary
    )


def _ops(segments: Iterable[Segment]) -> int:
    """Return the number of ops that are kernels: views are none."""
    return sum(op.kind != "view" for segment in segments for op in segment.work)
