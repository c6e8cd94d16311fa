"""Seconds of one training step on a GPU cluster, by cause.

    step = (m + (p - 1) / v) x slowest stage + exposed communication of the step + optimizer,
           and at least (m + (p - 1) / v) x the time to launch the kernels of a stage

for m micro-batches and p pipeline stages of v parts. A stage is compute and the communication that
compute does not hide. ``(p - 1) / v`` stage times are the bubble (Narayanan et al., 2021);
transfers between stages are hidden. Communication once per step hides behind at most one
micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from waferstream.baselines.gpu.communication import Group, data_traffic, tensor_traffic_s
from waferstream.baselines.gpu.compute import head_s, launch_s, layer_s, optimizer_s
from waferstream.baselines.gpu.hardware import GpuClusterSpec
from waferstream.baselines.gpu.software import SoftwareSpec
from waferstream.baselines.gpu.workload import Parallelism, Workload
from waferstream.core.errors import ConfigError


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step by cause, and the size of its batch."""

    compute_s: float
    tensor_s: float
    """Exposed tensor-parallel communication."""
    data_s: float
    """Exposed data-parallel communication."""
    bubble_s: float
    optimizer_s: float
    launch_s: float
    """Time in which GPUs wait for kernels that the host has not launched yet."""
    samples: int
    """Sequences: the global batch."""
    tokens: int

    @property
    def total_s(self) -> float:
        """Seconds of the whole step."""
        return (
            self.compute_s
            + self.tensor_s
            + self.data_s
            + self.bubble_s
            + self.optimizer_s
            + self.launch_s
        )

    @property
    def samples_per_s(self) -> float:
        """Sequences per second."""
        return self.samples / self.total_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second."""
        return self.tokens / self.total_s


def step_time(
    workload: Workload,
    parallelism: Parallelism,
    gpus: int,
    cluster: GpuClusterSpec,
    software: SoftwareSpec,
) -> StepTime:
    """Return the time of a step on ``gpus``.

    Raises:
        ConfigError: The GPUs are no multiple of those of one copy of the model, or the pipeline
            has more stages than the model has layers.
    """
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
    bubbles = (parallelism.pipeline - 1) / parallelism.virtual_stages
    busy = StepTime(
        compute_s=micro_batches * compute,
        tensor_s=micro_batches * tensor,
        data_s=micro_batches * data_s + max(exposed * data.per_step_s, data.per_step_s - slot),
        bubble_s=bubbles * slot,
        optimizer_s=optimizer_s(
            owned if parallelism.sharding == "ddp" else owned / ranks,
            parallelism.optimizer_threads,
            cluster,
        ),
        launch_s=0.0,
        samples=samples,
        tokens=samples * workload.seq_len,
    )
    launches_s = (micro_batches + bubbles) * launch_s(
        _stage_layers(workload, parallelism), parallelism, cluster.host
    )
    return replace(busy, launch_s=max(0.0, launches_s - busy.total_s))


def model_flops_utilisation(
    workload: Workload, tokens_per_s: float, gpus: int, cluster: GpuClusterSpec
) -> float:
    """Return model FLOPs per second over the 16-bit peak of all GPUs (MFU)."""
    peak = gpus * cluster.gpu.flops_16bit_per_s
    return workload.model_flops_per_token * tokens_per_s / peak


def _stage(
    workload: Workload,
    parallelism: Parallelism,
    cluster: GpuClusterSpec,
    software: SoftwareSpec,
) -> tuple[float, float]:
    """Return compute and exposed tensor-parallel seconds of the slowest stage, that of the head."""
    layers = _stage_layers(workload, parallelism)
    compute = layers * layer_s(workload, parallelism, cluster.gpu, software) + head_s(
        workload, parallelism, cluster.gpu, software
    )
    group = Group(parallelism.tensor, cluster)
    traffic = layers * tensor_traffic_s(workload, parallelism, group)
    if parallelism.overlap_tensor:
        # Sent in as many chunks as there are ranks; nothing hides the first one.
        first = traffic / parallelism.tensor
        return compute, first + max(0.0, traffic - first - compute)
    return compute, software.exposed_share * traffic


def _stage_layers(workload: Workload, parallelism: Parallelism) -> int:
    """Return the layers of the pipeline stage that has most of them."""
    return -(-workload.layers // parallelism.pipeline)


def _check_stages(workload: Workload, parallelism: Parallelism) -> None:
    """Raise if the pipeline has more stages than the model has layers."""
    stages = parallelism.pipeline * parallelism.virtual_stages
    if stages > workload.layers:
        raise ConfigError(
            "pipeline stages must be at most the layers of the model",
            code="more-stages-than-layers",
            where="pipeline x virtual_stages",
            value=stages,
            rule=f"at most {workload.layers}",
        )
