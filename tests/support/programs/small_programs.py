"""A program written by hand: two layers, forward and backward, no kernels."""

from __future__ import annotations

from typing import Any, Literal

from waferstream.core.program.program import Program, ProgramKind, TensorSpec
from waferstream.core.program.segment import Segment

PARAMETERS = (
    TensorSpec("first.weight", (4, 4), "float32"),
    TensorSpec("first.bias", (4,), "float32"),
    TensorSpec("last.weight", (2, 4), "float32"),
    TensorSpec("last.frozen", (3,), "float32"),
)


def segment(
    index: int,
    phase: Literal["forward", "backward"] = "forward",
    layer: str = "layer",
    **fields: Any,
) -> Segment:
    """Return a segment with empty fields except those given."""
    names = ("weights", "gradients", "inputs", "outputs", "drops", "results", "work")
    empty: dict[str, Any] = dict.fromkeys(names, ())
    return Segment(index=index, phase=phase, layer=layer, **{**empty, **fields})


SEGMENTS = (
    segment(
        0,
        layer="first",
        weights=("first.weight", "first.bias"),
        inputs=("x",),
        outputs=("hidden",),
    ),
    segment(
        1,
        layer="last",
        weights=("last.weight", "last.frozen"),
        inputs=("hidden",),
        outputs=("slope",),
        results=((0, "loss"),),
    ),
    segment(
        2,
        "backward",
        "last",
        gradients=("last.weight",),
        inputs=("slope", "hidden"),
        outputs=("above",),
        drops=("slope", "hidden"),
    ),
    segment(
        3,
        "backward",
        "first",
        weights=("first.weight",),
        gradients=("first.weight", "first.bias"),
        inputs=("above", "x"),
        drops=("above", "x"),
    ),
)


def program(stream_dtype: str = "float32", segments: tuple[Segment, ...] = SEGMENTS) -> Program:
    """Return the program for five micro-batches of two samples."""
    return Program(
        kind=ProgramKind.TRAIN,
        digest="cs_0",
        parameters=PARAMETERS,
        stream_dtype=stream_dtype,
        inputs=(TensorSpec("x", (2, 4), "float32"),),
        num_results=1,
        segments=segments,
        micro_batch_size=2,
        num_micro_batches=5,
    )
