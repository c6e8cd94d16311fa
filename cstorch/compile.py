"""``cstorch.compile``: hand the model to the backend; and how a step of that model is compiled."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from cstorch.amp import stream_precision
from cstorch.backend import Backend, current_backend
from timing.sram import plan_sram, report_text, sram_report
from wsc.compiler.capture import Step
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.compiled import Compiled
from wsc.compiler.listing import schedule_listing
from wsc.core.errors import ApplianceCompilationError

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class Fit:
    """How a step is made to fit the wafer: samples at a time, layers that are recomputed."""

    micro_batch_size: int
    recomputed_layers: tuple[str, ...] = ()


def compile(model: nn.Module, backend: Backend | None = None) -> nn.Module:
    """Register the model with the backend; returns what a traced step calls."""
    (backend or current_backend()).register(model)
    return model


def model_of(backend: Backend) -> nn.Module:
    """The registered model; ApplianceCompilationError if there is none."""
    if backend.model is None:
        raise ApplianceCompilationError(
            "no model was compiled", remedy="call cstorch.compile(model, backend) first"
        )
    return backend.model


def compile_afresh(
    backend: Backend, step: Step, tensors: Sequence[torch.Tensor], fit: Fit
) -> Compiled:
    """The program of a step, without the compile cache and without a word.

    ``tensors`` are those of a global batch that the step takes, all with its rows.
    """
    return compile_step(step, model_of(backend), *_request(backend, tensors, fit))[0]


def compile_cached(
    backend: Backend, step: Step, tensors: Sequence[torch.Tensor], fit: Fit
) -> Compiled:
    """The same through the compile cache, with what people expect to read of a compile."""
    batch_size, size = tensors[0].shape[0], fit.micro_batch_size
    log.info("Compiling the model. This may take a few minutes.")
    log.info(
        "Effective batch size is %d: %d x micro-batch %d", batch_size, batch_size // size, size
    )
    cache = None if backend.validate_only else backend.cache
    request = _request(backend, tensors, fit)
    compiled, was_cached = compile_step(step, model_of(backend), *request, cache)
    digest = compiled.program.digest
    if was_cached:
        log.info('Found existing cached compile with hash: "%s"', digest)
    elif cache is not None:
        log.info("Compile artifacts successfully written to %s", cache.root / digest)
    if backend.compile_only:
        _tell_schedule(backend, compiled)
    if backend.validate_only:
        log.info("Every op of the step has a kernel")
    log.info("Compile was successful!")
    return compiled


def _tell_schedule(backend: Backend, compiled: Compiled) -> None:
    """What streams when, and what lies where on the wafer."""
    log.info("%s", schedule_listing(compiled.program, backend.size().num_servers))
    wafer = backend.cluster_config.cluster.machine.system
    log.info("%s", report_text(sram_report(plan_sram(compiled.program, wafer))))


def _request(
    backend: Backend, tensors: Sequence[torch.Tensor], fit: Fit
) -> tuple[list[tuple[str, torch.Tensor]], CompileRequest]:
    """The inputs of one micro-batch, and what else decides the result of a compile."""
    config, size = backend.cluster_config, fit.micro_batch_size
    inputs = [(f"input_{i}", t.new_empty(size, *t.shape[1:])) for i, t in enumerate(tensors)]
    request = CompileRequest(
        precision=stream_precision(),
        micro_batch_size=size,
        num_micro_batches=tensors[0].shape[0] // size,
        recomputed_layers=fit.recomputed_layers,
        target=f"{config.num_csx} x {config.cluster.machine.model_dump_json()}",
    )
    return inputs, request
