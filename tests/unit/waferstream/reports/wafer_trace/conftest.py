"""A streamed product on a few PEs."""

from __future__ import annotations

import pytest

from csnode.engine.calls import KernelCall, run_call
from csnode.engine.fabric import FabricArray, Run
from waferstream.reports.wafer_trace.kernel_trace import KernelTrace


@pytest.fixture(scope="package")
def trace() -> KernelTrace:
    runs: list[Run] = []
    call = KernelCall("streamed_product", (6, 6, 6), "bfloat16")
    run_call(FabricArray(2, 3, on_run=runs.append, keeps_history=True), call)
    whole = call._replace(shape=(60, 60, 60))
    return KernelTrace(
        "gpt<2>", "decoder.0", "forward", "mm", whole, call, 2, 3, 100.0, runs[0].outcome
    )
