"""Seconds of one training step on a GPU cluster, by cause.

    step = (m + (p - 1) / v) x slowest stage + exposed communication of the step + optimizer,
           and at least (m + (p - 1) / v) x the time to launch the kernels of a stage

for m micro-batches and p pipeline stages of v parts. A stage is compute and the communication that
compute does not hide. ``(p - 1) / v`` stage times are the bubble (Narayanan et al., 2021);
transfers between stages are hidden. Communication once per step hides behind at most one
micro-batch.

A layer takes the sum of three terms: matrix products at a share of the peak, attention at the share
of its kernel, and activation traffic at the bandwidth of HBM. Small layers are therefore less
efficient without a fitted curve: arithmetic grows with the square of the hidden size, traffic
linearly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from waferstream.baselines.gpu.communication import Group, data_traffic, tensor_traffic_s
from waferstream.baselines.gpu.hardware import GpuClusterSpec, GpuSpec, HostSpec
from waferstream.baselines.gpu.software import SoftwareSpec
from waferstream.baselines.gpu.workload import Parallelism, Recompute, Workload
from waferstream.core.errors import ConfigError

_ALIGNED = 8
"""Elements of 16 bit in the 16 bytes to which tensor cores want every row aligned."""

_MATMUL_PASSES: dict[Recompute, float] = {
    "none": 3,
    "selective": 3.5,
    "needed": 4 - 1 / 3,
    "full": 4,
}
_OTHER_PASSES: dict[Recompute, float] = {"none": 3, "selective": 4, "needed": 4, "full": 4}
"""Equivalent forward passes of a step: forward (1), backward (2) and recomputation."""

_FLASH_PASSES: dict[Recompute, float] = {
    "none": 3.5,
    "selective": 3.5,
    "needed": 4.5,
    "full": 4.5,
}
"""Equivalent forward passes of fused attention, whose backward pass recomputes the scores: five
matrix products against two. Selective recomputation keeps its result."""

_LAYER_KERNELS: dict[Recompute, int] = {"none": 21, "selective": 21, "needed": 28, "full": 29}
"""Kernels of a layer, forward and backward, that no software stack fuses into others.

Forward 8: four matrix products, attention, two norms, activation. Backward 13: two products for
each of the four, attention and the row sums before it (Dao, 2023: FlashAttention-2), two norms,
activation. Full recomputation repeats the forward ones. Biases, residual sums, head, optimizer and
communication are left out, so the number is a lower bound.
"""


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
    ranks = parallelism.shards(gpus)
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
    launches_s = (micro_batches + bubbles) * launch_s(workload, parallelism, cluster.host, software)
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
    whole = layers * layer_s(workload, parallelism, cluster.gpu, software) + head_s(
        workload, parallelism, cluster.gpu, software
    )
    compute = whole / parallelism.context
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


def layer_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    """Return the seconds of one layer, forward and backward, for one micro-batch on one GPU.

    Tensor parallelism divides everything except the passes that every rank makes over whole
    vectors (``whole_passes``).
    """
    arithmetic = _matmul_s(workload, parallelism, gpu, software) + _attention_s(
        workload, parallelism, gpu, software
    )
    traffic = _traffic_s(workload, parallelism, gpu, software)
    return arithmetic / parallelism.tensor + traffic


def head_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    """Return the seconds of output projection and loss, in 16 bit and never recomputed."""
    tokens = parallelism.micro_batch * workload.seq_len
    flops = 6 * workload.head_parameters * tokens
    moved = software.vocabulary_bytes * workload.vocab * tokens
    rate = _matmul_flops_per_s(gpu, software)
    return (flops / rate + moved / _hbm(gpu)) / parallelism.tensor


def launch_s(
    workload: Workload, parallelism: Parallelism, host: HostSpec, software: SoftwareSpec
) -> float:
    """Return the least seconds in which a host launches the kernels of a micro-batch."""
    kernels = _LAYER_KERNELS[parallelism.recompute]
    if software.launches_every_op and workload.layer_ops:
        # A recomputed layer launches as many more as it would with fused kernels.
        kernels = round(workload.layer_ops * kernels / _LAYER_KERNELS["none"])
    layers = _stage_layers(workload, parallelism)
    return layers * kernels * (host.launch_s + software.dispatch_s)


def optimizer_s(owned_parameters: float, threads: int, cluster: GpuClusterSpec) -> float:
    """Return the seconds of an Adam update: gradient in, 12 bytes of state in and out, weight out.

    Args:
        owned_parameters: Parameters that one rank updates; gradients and weights have 16 bit.
        threads: Host threads that run the update; gradient and weight then pass PCIe. 0: the GPU.
        cluster: The hardware.
    """
    if not threads:
        return owned_parameters * (2 + 2 * 12 + 2) / _hbm(cluster.gpu)
    host = cluster.host
    update_s = 1 / (threads * host.adam_per_core_s)
    return owned_parameters * (update_s + (2 + 2) / host.pcie_bandwidth_bytes_per_s)


def _matmul_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    """Return the seconds of all matrix products of one layer, without tensor parallelism."""
    tokens = parallelism.micro_batch * workload.seq_len
    flops = _MATMUL_PASSES[parallelism.recompute] * 2 * workload.layer_parameters * tokens
    rate = _matmul_flops_per_s(gpu, software)
    if parallelism.float8:
        rate *= gpu.flops_8bit_per_s / gpu.flops_16bit_per_s * software.float8_share
    return flops / (rate * _alignment(workload.hidden, gpu))


def _attention_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    """Return the seconds of attention of one layer, without tensor parallelism."""
    scores = parallelism.micro_batch * workload.scores_per_sequence / workload.layers
    flops = 4 * scores * workload.hidden / workload.heads
    if software.flash_attention:
        # Masked scores, half of all, are skipped.
        share = gpu.flash_share * software.attention_speed
        passes = _FLASH_PASSES[parallelism.recompute]
        return passes * flops / 2 / (gpu.flops_16bit_per_s * share)
    passes = _OTHER_PASSES[parallelism.recompute]
    rate = _matmul_flops_per_s(gpu, software) * _alignment(workload.head_size, gpu)
    return passes * flops / rate + passes / 3 * software.score_bytes * scores / _hbm(gpu)


def _traffic_s(
    workload: Workload, parallelism: Parallelism, gpu: GpuSpec, software: SoftwareSpec
) -> float:
    """Return the seconds that one layer moves activations through HBM."""
    tokens = parallelism.micro_batch * workload.seq_len
    divided = (software.hidden_passes - software.whole_passes) / parallelism.tensor
    passes = _OTHER_PASSES[parallelism.recompute] / 3 * (divided + software.whole_passes)
    return passes * 2 * workload.hidden * tokens / _hbm(gpu)


def _matmul_flops_per_s(gpu: GpuSpec, software: SoftwareSpec) -> float:
    """Return the sustained 16-bit rate of matrix products."""
    return gpu.flops_16bit_per_s * gpu.matmul_share * software.matmul_speed


def _alignment(extent: int, gpu: GpuSpec) -> float:
    """Return the relative speed of a matrix product with this extent."""
    return gpu.misaligned_share if extent % _ALIGNED else 1.0


def _hbm(gpu: GpuSpec) -> float:
    """Return the sustained HBM bandwidth in bytes per second."""
    return gpu.hbm_bandwidth_bytes_per_s * gpu.hbm_share
