"""The kernels of a cluster's segments in a plain loop, and their distance to torch.

The loop stays a plain one: each micro-batch passes the segments in order, in one thread. With
``runtime.engine.kernels: compiled`` weights on the cluster are bitwise equal to those of this loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.fusion.program import Fusion, Request
from waferstream.core.optimizer import LOSS_SCALE_INPUT
from waferstream.core.program.fused import FusedKernel
from waferstream.core.program.label_means import SEED_INPUT
from waferstream.core.program.micro_batches import Cut
from waferstream.core.program.segment import Segment
from waferstream.core.rng import stream_key
from waferstream.host.user_state import state_folder
from waferstream.numerics.keyed_random import BATCH_KEY_INPUT, KEY_INPUT
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.data import Batch

Kernel = Callable[..., tuple[Any, ...]]


class Segments:
    """The kernels of a model's step, for micro-batches of a cut.

    Args:
        model: The model.
        batch: Tensors of a micro-batch; their values do not matter.
        cut: The batch in micro-batches.
        precision: The types in which weights stream and functions compute.
        seed: That of random ops.
        folder: The compile cache; without one, that of the user.
        is_compiled: Whether kernels are compiled, not eager.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        cut: Cut,
        precision: StreamPrecision,
        seed: int,
        folder: Path | None = None,
        is_compiled: bool = True,
    ) -> None:
        request = CompileRequest(
            precision, cut.size, cut.num_micro_batches, "reference", num_short=cut.num_short
        )

        def step(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            loss: torch.Tensor = model(**dict(zip(batch, inputs, strict=True)))
            loss.backward()
            return [loss]

        inputs = [(name, tensor[: cut.size]) for name, tensor in batch.items()]
        compiled, _ = compile_step(step, model, inputs, request)
        self._program, self._seed = compiled.program, seed
        read = (*self._program.whole, *self._program.state.reads)
        if names := ", ".join(spec.name for spec in read):
            raise SystemExit(f"segments of the loop read micro-batches alone, not {names}")
        sized = [(compiled.program.segments, compiled.kernels)]
        if compiled.short is not None:
            sized.append((compiled.short.segments, compiled.short.kernels))
        fused: list[list[FusedKernel | None]] = [[None] * len(kernels) for _, kernels in sized]
        if is_compiled:
            cores = len(os.sched_getaffinity(0))
            root = folder or state_folder() / "kernels"
            fusion = Fusion(Request(compiled.program, tuple(sized), root, cores))
            fused = [[entry.fused for entry in entries] for entries in fusion.finish()]
            if not fused:
                raise SystemExit("no kernels were compiled: the warning above says why")
        self._sized: list[list[tuple[Segment, Kernel]]] = [
            [
                (segment, kernel.build() if other is None else other.build(kernel))
                for segment, kernel, other in zip(segments, kernels, others, strict=True)
            ]
            for (segments, kernels), others in zip(sized, fused, strict=True)
        ]

    @torch.no_grad()
    def gradients(
        self,
        weights: Mapping[str, torch.Tensor],
        batch: Batch,
        step: int,
        index: int,
        share: float,
        loss_scale: float,
    ) -> Iterator[torch.Tensor]:
        """Yield the gradients of a micro-batch with a ``share`` of the loss, in master order."""
        names = (spec.name for spec in self._program.inputs_of(index))
        values: dict[str, Any] = {
            **dict(zip(names, batch.values(), strict=True)),
            KEY_INPUT: stream_key(self._seed, step, index),
            BATCH_KEY_INPUT: stream_key(self._seed, step, 0),
            SEED_INPUT: share,
            LOSS_SCALE_INPUT: loss_scale,
        }
        found: dict[str, torch.Tensor] = {}
        for segment, kernel in self._sized[self._program.is_short(index)]:
            operands = [weights[name].detach() for name in segment.weights]
            returned = kernel(*operands, *(values[name] for name in segment.inputs))
            outputs, first = segment.outputs, len(segment.outputs)
            values.update(zip(outputs, returned[:first], strict=True))
            found.update(zip(segment.gradients, returned[first:], strict=False))
            for name in segment.drops:
                del values[name]
        yield from (found[name] for name in self._program.trained)


def distance_text(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> str:
    """Return how far gradients are from others, in absolute terms and of each tensor's largest."""
    pairs = [(a.float(), b.float()) for a, b in zip(ours, theirs, strict=True)]
    absolute = max(float((a - b).abs().max()) for a, b in pairs)
    norm = sum(float((a - b).square().sum()) for a, b in pairs) ** 0.5
    of = sum(float(b.square().sum()) for _, b in pairs) ** 0.5
    return f"at most {absolute:.1e}, {norm / of:.1e} of their norm"
