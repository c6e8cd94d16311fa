"""Traces of kernels: every kernel of a layer, the files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from csnode.engine.calls import calls_of
from csnode.engine.spec import KernelName
from tests.support.errors import raises
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from tests.support.runs.tiny_run import run_here, write_run
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import Program
from waferstream.simulation.wafer_trace import trace_kernel
from waferstream.simulation.wafer_trace_request import WaferTraceRequest


@pytest.fixture(scope="module")
def program() -> Program:
    (batch,) = random_batches(1, 32, width=16)
    return compile_model(Regression(width=16), batch, 1).program


def layer_with(program: Program, kernel: KernelName) -> str:
    return next(
        segment.layer
        for segment in program.segments
        for work in segment.work
        if kernel in {call.kernel for call in calls_of(work, "float32")}
    )


@pytest.mark.parametrize("kernel", ["streamed_product", "token_product", "token_sum"])
def test_trace_shows_a_kernel_of_the_layer(program: Program, kernel: KernelName) -> None:
    request = WaferTraceRequest(layer_with(program, kernel), kernel, 2, 3)
    trace = trace_kernel(program, "float32", request, "regression")
    assert trace.call.kernel == trace.whole.kernel == kernel
    assert all(cut <= whole for cut, whole in zip(trace.call.shape, trace.whole.shape, strict=True))
    assert trace.call.shape != trace.whole.shape
    assert trace.shape == ((3, 3) if kernel == "streamed_product" else (2, 3))
    assert trace.closed_form == pytest.approx(trace.cycles, rel=0.05)


def test_products_with_streamed_weights_come_first(program: Program) -> None:
    request = WaferTraceRequest("layers.0", None, 2, 2)
    trace = trace_kernel(program, "float32", request, "regression")
    assert trace.call.kernel == "streamed_product"
    assert trace.phase == "forward"


@pytest.mark.parametrize(
    ("layer", "kernel", "code"),
    [("layer.0", None, "wafer-trace-layer"), ("layers.0", "softmax", "wafer-trace-kernel")],
)
def test_kernel_that_the_model_has_not_is_refused(
    program: Program, layer: str, kernel: KernelName | None, code: str
) -> None:
    with raises(ConfigError, code):
        trace_kernel(program, "float32", WaferTraceRequest(layer, kernel), "regression")


def test_command_writes_pictures_and_page_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        *write_run(tmp_path, compiles=True),
        "--wafer_trace=decoder.0:layer_norm@2x3",
        "--json",
    ]
    code, out, _ = run_here(flags, capsys)
    assert code == 0
    result = json.loads(out)
    folder = tmp_path / "model_dir"
    assert {path.name for path in folder.iterdir()} == {"cached_compile", "wafer_trace"}
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    assert Path(result["moving_picture"]).read_text(encoding="utf-8").startswith("<svg")
    assert f"{result['cycles']:,} cycles" in Path(result["page"]).read_text(encoding="utf-8")
