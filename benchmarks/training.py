"""A cluster that trains a GPT, without a front end around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import LoadWeights, Run
from appliance.elaboration.elaborate import ClusterSize, plan_installation
from appliance.plan import ClusterPlan
from appliance.spec import AutoRestart, ClusterSpec
from appliance.starting import start_cluster
from benchmarks.streaming.workload import ADAMW, Workload
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.core.optimizer import OptimizerSpec, ParamGroup
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import InputFeed
from waferstream.numerics.precision import StreamPrecision


class Training:
    """A cluster that holds the program of a workload, and goes on training.

    Args:
        workload: The model and its batches.
        size: The roles.
        spec: Where they run.
        autorestart: How losses are dealt with, if they are.
        start: Starts the cluster.
    """

    def __init__(
        self,
        workload: Workload,
        size: ClusterSize,
        spec: ClusterSpec,
        autorestart: AutoRestart | None = None,
        start: Callable[[ClusterPlan], Cluster] = start_cluster,
    ) -> None:
        model, compiled = _compile(workload)
        self._weights = {name: p.detach() for name, p in model.named_parameters()}
        hyper: dict[str, Any] = {**ADAMW, "correct_bias": True, "amsgrad": False}
        optimizer = OptimizerSpec("AdamW", (ParamGroup(tuple(self._weights), hyper),))
        feed = InputFeed(workload.source, tuple(range(len(compiled.program.inputs))))
        self._installation = plan_installation(compiled, feed, optimizer, size, spec.machine)
        parameters = compiled.program.parameters
        plan = ClusterPlan(parameters, size, spec, seed=0, autorestart=autorestart)
        self.cluster: Cluster = start(plan)
        self._steps_done = 0

    def load(self) -> None:
        """Install the program and fill the weights."""
        self.cluster.do(Install(self._installation))
        self.cluster.do(LoadWeights(self._weights))

    def run(self, steps: int) -> None:
        """Train for some steps."""
        self.cluster.do(Run(ProgramKind.TRAIN, self._steps_done + 1, self._steps_done + steps))
        self._steps_done += steps


def _compile(workload: Workload) -> tuple[torch.nn.Module, Compiled]:
    model, batch = workload.model(), next(iter(workload.source()))
    leaves, structure = pytree.tree_flatten(dict(batch))
    size = workload.micro_batch_size

    def step(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss: torch.Tensor = model(**pytree.tree_unflatten(tensors, structure))
        loss.backward()
        return [loss]

    inputs = [(f"input_{index}", leaf[:size]) for index, leaf in enumerate(leaves)]
    precision = StreamPrecision("float32", "float32")
    count = workload.batch_size // size
    request = CompileRequest(precision, size, count, target="benchmark")
    return model, compile_step(step, model, inputs, request)[0]
