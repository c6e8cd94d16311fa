"""Steps of equal layers whose activations are large, for tests of SRAM plans."""

from __future__ import annotations

from dataclasses import replace

from tests.support.programs.small_programs import program, segment
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint, OpWork, Stash

GB = 1_000_000_000


def layers(count: int, *, internal: int = 4, output: int = 1, fixed: int = 0) -> Program:
    """Return forward and backward of a chain of layers; sizes in 100 MB per sample."""
    unit = GB // 10
    forward = [
        segment(
            i,
            layer=f"layer.{i}",
            inputs=(f"h{i - 1}",) if i else ("x",),
            outputs=(f"h{i}", f"inner{i}"),
            drops=(),
            stash=(
                Stash((f"h{i}",), Footprint(0, output * unit)),
                Stash((f"inner{i}",), Footprint(fixed, internal * unit)),
            ),
            working=Footprint(fixed, (output + internal) * unit),
            work=(OpWork(f"forward {i}", "matmul", 10, reruns=True),),
            weights=("first.weight",),
        )
        for i in range(count)
    ]
    backward = [
        segment(
            2 * count - 1 - i,
            "backward",
            f"layer.{i}",
            inputs=(f"inner{i}", *((f"d{i + 1}",) if i + 1 < count else (f"h{i}",))),
            outputs=(f"d{i}",) if i else (),
            drops=(f"inner{i}", *((f"d{i + 1}",) if i + 1 < count else (f"h{i}",)), f"h{i}"),
            stash=(Stash((f"d{i}",), Footprint(0, output * unit)),) if i else (),
            working=Footprint(0, output * unit),
            work=(OpWork(f"backward {i}", "matmul", 20),),
        )
        for i in reversed(range(count))
    ]
    return replace(program(segments=(*forward, *backward)), micro_batch_size=1)


def step_with_head() -> Program:
    """Return a step whose output head makes a hundred times what a layer makes."""
    return program(
        segments=(
            segment(0, layer="embedding", outputs=("x",), stash=_piece("x", 1)),
            segment(1, layer="decoder.0", inputs=("x",), outputs=("y",), stash=_piece("y", 1)),
            segment(
                2,
                layer="head",
                inputs=("y",),
                outputs=("logits",),
                stash=_piece("logits", 100),
                working=Footprint(7, 200),
            ),
            segment(
                3,
                "backward",
                "head",
                inputs=("logits", "y"),
                outputs=("dy",),
                stash=_piece("dy", 1),
                working=Footprint(0, 200),
            ),
            segment(4, "backward", "decoder.0", inputs=("dy", "x"), working=Footprint(0, 2)),
        )
    )


def _piece(name: str, sample_bytes: int) -> tuple[Stash]:
    return (Stash((name,), Footprint(0, sample_bytes)),)
