"""One kernel of a layer on the simulator of the fabric, as a picture and as an animation.

model_dir/wafer_trace/
    <layer>_<kernel>_<rows>x<columns>.png     what every PE did, and how many were busy
    <layer>_<kernel>_<rows>x<columns>.svg     the same as a picture that moves
    <layer>_<kernel>_<rows>x<columns>.html    the same as an animation, on one page

The kernel has the layout of ``runtime.engine: wafer-cycles``. Its operands are random numbers, cut
to a few for each PE, so that single wavelets can be followed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from appliance.spec import ClusterSpec
from csnode.engine.calls import KernelCall, calls_of, run_call
from csnode.engine.closed_forms import kernel_cycles, region_grid
from csnode.engine.fabric import FabricArray, Run
from csnode.engine.regions import operand_dtype
from cstorch.amp import stream_precision
from cstorch.flags import restored
from waferstream.config.params import Params
from waferstream.core.errors import ConfigError, nearest
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Segment
from waferstream.host.files import replacing
from waferstream.reports.wafer_trace.kernel_trace import KernelTrace
from waferstream.reports.wafer_trace.page import trace_page
from waferstream.reports.wafer_trace.picture import moving_picture, trace_picture
from waferstream.simulation.capture import capture_step
from waferstream.simulation.wafer_trace_request import FLAG, WaferTraceRequest
from waferstream.training.setup.backend import make_backend

log = logging.getLogger("waferstream")

_TOKENS, _FEATURES, _PRODUCT_FEATURES = 4, 4, 2
"""Tokens and features of a PE that are kept, and features of one where outputs multiply them."""


def run_wafer_trace(
    params: Params, request: WaferTraceRequest, cluster: ClusterSpec, command: str = ""
) -> dict[str, str | int | float]:
    """Trace the kernel that was asked for, and write pictures and page.

    Returns the paths of all, the cycles that were counted, and those of the closed form.

    Raises:
        ConfigError: The model has no such layer, or the layer no such kernel.
    """
    torch.set_num_threads(1)
    with restored():
        backend = make_backend(params, cluster)
        try:
            step = capture_step(params, backend)
            program = step.program.at(_micro_batch(params), 1)
            dtype = operand_dtype(stream_precision().compute)
        finally:
            backend.shutdown()
    label = params.trainer.init.model.label(step.model_class)
    trace = trace_kernel(program, dtype, request, label)
    picture, moving, page = _written(trace, params.trainer.init.model_dir / "wafer_trace", command)
    log.info(
        "%s of %s on %d x %d PEs: %d cycles, %.0f by closed form\n  %s\n  %s\n  %s",
        trace.call.kernel,
        trace.layer,
        *trace.shape,
        trace.cycles,
        trace.closed_form,
        picture,
        moving,
        page,
    )
    return {
        "picture": str(picture),
        "moving_picture": str(moving),
        "page": str(page),
        "cycles": trace.cycles,
        "closed_form_cycles": round(trace.closed_form, 1),
    }


def _written(trace: KernelTrace, folder: Path, command: str) -> tuple[Path, Path, Path]:
    """Write the pictures and the page of a trace; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{trace.layer}_{trace.call.kernel}_{trace.rows}x{trace.columns}"
    picture, moving, page = (folder / f"{name}{suffix}" for suffix in (".png", ".svg", ".html"))
    trace_picture(picture, trace)
    for path, text in ((moving, moving_picture(trace)), (page, trace_page(trace, command))):
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return picture, moving, page


def _micro_batch(params: Params) -> int:
    """Return the samples of a micro-batch as one system takes them."""
    fit = params.trainer.fit
    assert fit is not None, "the step was captured"
    policy = params.trainer.init.micro_batch_policy("train")
    num_csx = params.trainer.init.backend.cluster_config.num_csx
    batch_size = fit.train_dataloader.batch_size
    return 1 if policy.range is not None else policy.size(batch_size, num_csx)


def trace_kernel(
    program: Program, dtype: str, request: WaferTraceRequest, model: str
) -> KernelTrace:
    """Return the trace of one kernel of a layer on the PEs of a region.

    Args:
        program: The step.
        dtype: Type of the operands of products.
        request: Layer, kernel and region.
        model: Name of the model.
    """
    segment, op, call = _chosen(program, dtype, request)
    cut = call._replace(shape=_cut(call, request.rows, request.columns), times=1)
    runs: list[Run] = []
    array = FabricArray(request.rows, request.columns, on_run=runs.append, keeps_history=True)
    run_call(array, cut)
    (run,) = runs
    return KernelTrace(
        model=model,
        layer=segment.layer,
        phase=segment.phase,
        op=op,
        whole=call,
        call=cut,
        rows=request.rows,
        columns=request.columns,
        closed_form=kernel_cycles(region_grid(request.rows, request.columns), cut).total_cycles,
        outcome=run.outcome,
    )


def _chosen(
    program: Program, dtype: str, request: WaferTraceRequest
) -> tuple[Segment, str, KernelCall]:
    """Return the first kernel of the layer that was asked for, streamed products before others."""
    segments = [each for each in program.segments if each.layer == request.layer]
    if not segments:
        layers = list(dict.fromkeys(each.layer for each in program.segments))
        guess = nearest(request.layer, layers)
        raise ConfigError(
            "the layer of a trace must be one of the model",
            code="wafer-trace-layer",
            where=FLAG,
            value=request.layer,
            rule=f"one of {', '.join(layers)}",
            remedy=None if guess is None else f"did you mean {guess!r}?",
        )
    calls = [
        (segment, work.op, call)
        for segment in segments
        for work in segment.work
        for call in calls_of(work, dtype)
    ]
    wanted = request.kernel
    if wanted is None and calls:
        found = {call.kernel for _, _, call in calls}
        wanted = "streamed_product" if "streamed_product" in found else calls[0][2].kernel
    for each in calls:
        if each[2].kernel == wanted:
            return each
    raise ConfigError(
        "the layer must have a kernel that the simulator of the fabric has",
        code="wafer-trace-kernel",
        where=FLAG,
        value=f"{request.layer}: {request.kernel or 'any'}",
        rule=_candidates(calls) or "none of its ops adds up on the array",
        remedy=None if calls else "name a layer with products, such as a decoder layer",
    )


def _candidates(calls: Sequence[tuple[Segment, str, KernelCall]]) -> str:
    return ", ".join(dict.fromkeys(call.kernel for _, _, call in calls))


def _cut(call: KernelCall, rows: int, columns: int) -> tuple[int, ...]:
    """Return the sizes of a kernel, cut to a few tokens and features for each PE."""
    tokens, features = _TOKENS * rows, _FEATURES * columns
    few = _PRODUCT_FEATURES * columns
    most: tuple[int, ...]
    match call.kernel:
        case "streamed_product":
            most = (tokens, few, few)
        case "token_product":
            most = (few, tokens, few)
        case "resident_product":
            most = (_FEATURES * min(rows, columns),) * 3
        case _:
            most = (*call.shape[:-2], tokens, features)
    return tuple(map(min, call.shape, most))
