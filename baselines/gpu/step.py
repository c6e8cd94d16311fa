"""One training step on a GPU cluster, attributed.

    step = (m + (p - 1) / v) x slowest stage + exposed communication of the step + optimizer

for m micro-batches and p pipeline stages of v parts; a stage computes, and sends what nothing
hides. ``(p - 1) / v`` stage times are the bubble (Narayanan et al., 2021); what stages send to each
other is hidden. Communication once per step hides behind one micro-batch at most.
"""

from __future__ import annotations

from dataclasses import dataclass

from baselines.gpu.collectives import Group
from baselines.gpu.communication import data_traffic, tensor_traffic_s
from baselines.gpu.compute import head_s, layer_s, optimizer_s
from baselines.gpu.hardware import GpuClusterSpec
from baselines.gpu.parallelism import Parallelism
from baselines.gpu.software import SoftwareSpec
from baselines.gpu.workload import Workload
from wsc.core.errors import ConfigError


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step by what they go to, and what the step trains on."""

    compute_s: float
    tensor_s: float
    """Exposed tensor-parallel communication."""
    data_s: float
    """Exposed data-parallel communication."""
    bubble_s: float
    optimizer_s: float
    samples: int
    """Sequences: the global batch."""
    tokens: int

    @property
    def total_s(self) -> float:
        parts = (self.compute_s, self.tensor_s, self.data_s, self.bubble_s, self.optimizer_s)
        return sum(parts)

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.total_s

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.total_s


def step_time(
    workload: Workload,
    parallelism: Parallelism,
    gpus: int,
    cluster: GpuClusterSpec,
    software: SoftwareSpec,
) -> StepTime:
    """The time of a step on ``gpus``; ConfigError if the degrees do not divide GPUs or layers."""
    _check_stages(workload, parallelism)
    ranks = parallelism.data_parallel(gpus)
    data_group = Group(ranks, cluster, stride=parallelism.tensor)
    compute, tensor = _stage(workload, parallelism, cluster, software)
    data = data_traffic(workload, parallelism, data_group, software)
    exposed = software.exposed_share
    data_s = max(exposed * data.per_micro_batch_s, data.per_micro_batch_s - compute - tensor)
    slot = compute + tensor + data_s
    micro_batches = parallelism.micro_batches
    samples = parallelism.samples_per_step(gpus)
    owned = workload.parameters / parallelism.model_parallel
    return StepTime(
        compute_s=micro_batches * compute,
        tensor_s=micro_batches * tensor,
        data_s=micro_batches * data_s + max(exposed * data.per_step_s, data.per_step_s - slot),
        bubble_s=(parallelism.pipeline - 1) / parallelism.virtual_stages * slot,
        optimizer_s=optimizer_s(
            owned if parallelism.sharding == "ddp" else owned / ranks,
            parallelism.optimizer_threads,
            cluster,
        ),
        samples=samples,
        tokens=samples * workload.seq_len,
    )


def model_flops_utilisation(
    workload: Workload, tokens_per_s: float, gpus: int, cluster: GpuClusterSpec
) -> float:
    """Model FLOPs per second over the 16-bit peak of all GPUs (MFU)."""
    peak = gpus * cluster.gpu.flops_16bit_per_s
    return workload.model_flops_per_token * tokens_per_s / peak


def _stage(
    workload: Workload,
    parallelism: Parallelism,
    cluster: GpuClusterSpec,
    software: SoftwareSpec,
) -> tuple[float, float]:
    """Computing and exposed tensor-parallel seconds of the slowest stage, which has the head."""
    layers = -(-workload.layers // parallelism.pipeline)
    compute = layers * layer_s(workload, parallelism, cluster.gpu, software) + head_s(
        workload, parallelism, cluster.gpu, software
    )
    group = Group(parallelism.tensor, cluster)
    traffic = layers * tensor_traffic_s(workload, parallelism, group)
    if parallelism.overlap_tensor:  # in as many chunks as ranks; the first has nothing to hide it
        first = traffic / parallelism.tensor
        return compute, first + max(0.0, traffic - first - compute)
    return compute, software.exposed_share * traffic


def _check_stages(workload: Workload, parallelism: Parallelism) -> None:
    stages = parallelism.pipeline * parallelism.virtual_stages
    if stages > workload.layers:
        raise ConfigError(
            "the pipeline has more stages than the model has layers",
            where="pipeline x virtual_stages",
            value=stages,
            rule=f"at most {workload.layers}",
        )
