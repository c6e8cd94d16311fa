"""``csxN``: the same training as a cstorch program, streamed through N systems on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from benchmarks.streaming.workload import ADAMW, Workload
from modelzoo.data.registry import build_source


@contextmanager
def open_cluster(workload: Workload, num_csx: int) -> Iterator[Callable[[int], None]]:
    """A function that trains a number of steps, of which only the last one's loss comes back.

    What the cluster needs (Ray, a compile, the weights) comes up with the first step.
    """
    torch.set_num_threads(1)  # this process only asks for steps
    cstorch.amp.enable_mixed_precision(workload.precision != "fp32")
    cstorch.backends.csx.precision.optimization_level = 1 if workload.precision == "bf16" else 0
    runtime = RuntimeSpec(kind="ray", cores=workload.cores)
    config = cstorch.ClusterConfig(num_csx=num_csx, cluster=ClusterSpec(runtime=runtime))
    backend = cstorch.backend("CSX", cluster_config=config)
    try:
        with backend.device:
            model = workload.model()
        compiled = cstorch.compile(model, backend)
        optimizer = cstorch.optim.AdamW(model.parameters(), **ADAMW)
        loader = cstorch.utils.data.DataLoader(build_source, workload.loader, "workload")

        @cstorch.trace
        def training_step(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = compiled(**batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            return loss

        def run(steps: int) -> None:
            executor = cstorch.utils.data.DataExecutor(
                loader, num_steps=steps, activation_steps=steps
            )
            for batch in executor:
                training_step(batch)

        yield run
    finally:
        backend.shutdown()
