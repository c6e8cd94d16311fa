"""Run the kernels of a compiled program one after the other, and the same model in eager mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from waferstream.compiler.capture.autocast import autocast
from waferstream.compiler.compiled import Compiled
from waferstream.core.program.fused import FusedKernel
from waferstream.core.program.label_means import SEED_INPUT
from waferstream.numerics.keyed_random import KEY_INPUT
from waferstream.numerics.precision import DTYPES, StreamPrecision

Gradients = dict[str, torch.Tensor]


def run_kernels(
    compiled: Compiled,
    model: nn.Module,
    batch: Mapping[str, torch.Tensor],
    key: int = 0,
    fused: Sequence[FusedKernel | None] = (),
) -> tuple[list[torch.Tensor], Gradients]:
    """Return results and gradients of one micro-batch, as a CS node computes them.

    ``fused`` are kernels that run instead of those of the segments.
    """
    program = compiled.program
    dtype = DTYPES[program.stream_dtype]
    held = torch.float32 if program.holds_fp32 else dtype
    weights = {name: p.detach().to(dtype).to(held) for name, p in model.named_parameters()}
    values: dict[str, Any] = dict(
        zip((spec.name for spec in program.inputs), batch.values(), strict=True)
    )
    values[KEY_INPUT] = key
    values[SEED_INPUT] = 1.0 / program.num_micro_batches
    results: dict[int, torch.Tensor] = {}
    gradients: Gradients = {}
    instead = fused or [None] * len(compiled.kernels)
    for segment, source, other in zip(program.segments, compiled.kernels, instead, strict=True):
        operands = [weights[name] for name in segment.weights]
        operands += [values[name] for name in segment.inputs]
        kernel = source.build() if other is None else other.build(source)
        returned = iter(kernel(*operands))
        values.update((name, next(returned)) for name in segment.outputs)
        gradients.update((name, next(returned)) for name in segment.gradients)
        results.update((place, next(returned)) for place, _ in segment.results)
        for name in segment.drops:
            del values[name]
        assert next(returned, None) is None
    return [results[place] for place in sorted(results)], gradients


def run_eagerly(
    model: nn.Module,
    batch: Mapping[str, torch.Tensor],
    precision: StreamPrecision,
    num_micro_batches: int,
) -> tuple[torch.Tensor, Gradients]:
    """Return loss and gradients by autograd, on weights cast as for the stream."""
    weights = {}
    for name, master in model.named_parameters():
        cast = master.detach().to(precision.stream_dtype).to(precision.compute_dtype).clone()
        weights[name] = cast.requires_grad_(master.requires_grad)
    with autocast(precision):
        loss = torch.func.functional_call(model, weights, kwargs=dict(batch))
    (loss / num_micro_batches).backward()
    found = {name: weight.grad for name, weight in weights.items()}
    return loss.detach(), {name: grad for name, grad in found.items() if grad is not None}
