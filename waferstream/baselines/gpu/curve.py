"""Scaling curves of GPU clusters: the fastest parallelism that fits, for each count of GPUs.

The bytes that training keeps on a GPU: mixed precision with Adam, 16-bit weights and gradients,
12 bytes of fp32 master weight and moments per parameter (Rajbhandari et al., 2020). Activations
after Korthikanti et al., 2022: 34 bytes per token, layer and hidden element, plus the attention
scores kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from waferstream.baselines.gpu.communication import WEIGHT_BYTES
from waferstream.baselines.gpu.hardware import GpuClusterSpec, GpuSpec
from waferstream.baselines.gpu.software import FSDP, MEGATRON, TORCHTITAN, SoftwareSpec
from waferstream.baselines.gpu.step import StepTime, model_flops_utilisation, step_time
from waferstream.baselines.gpu.workload import Parallelism, Recompute, Workload
from waferstream.core.errors import ConfigError

Kind = Literal["ddp", "zero3", "tensor+pipeline"]
KINDS: tuple[Kind, ...] = ("ddp", "zero3", "tensor+pipeline")

STATE_BYTES = 12
"""Bytes of optimizer state per parameter: fp32 master weight and both moments of Adam."""

LAYER_BYTES = 34
"""Bytes kept by a layer per token and hidden element, without scores; Korthikanti et al., 2022."""

LOGIT_BYTES = 6
"""Bytes per token and vocabulary entry: logits in 16 bit and in fp32."""


@dataclass(frozen=True)
class CurvePolicy:
    """Batch and parallelism kinds of a whole curve.

    Raises:
        ConfigError: Not exactly one of the two batches is given, or a size is below 1.
    """

    global_batch: int | None = None
    """Sequences of a step for any number of GPUs: strong scaling."""
    samples_per_gpu: int | None = None
    """Sequences of a step per GPU: weak scaling."""
    kinds: tuple[Kind, ...] = KINDS
    """Parallelism kinds to choose from."""
    largest_micro_batch: int | None = None
    """Sequences of a micro-batch at most; None: as many as fit."""
    float8: bool = False
    compiled: bool = False
    """Whether DDP and ZeRO-3 run with torch.compile instead of eagerly."""

    def __post_init__(self) -> None:
        given = [size for size in (self.global_batch, self.samples_per_gpu) if size is not None]
        largest = 1 if self.largest_micro_batch is None else self.largest_micro_batch
        if len(given) != 1 or given[0] < 1 or largest < 1 or not self.kinds:
            raise ConfigError(
                "a curve policy must have exactly one batch, a micro-batch and a parallelism kind",
                code="curve-policy-incomplete",
                where="global_batch, samples_per_gpu, largest_micro_batch, kinds",
                value=(
                    self.global_batch,
                    self.samples_per_gpu,
                    self.largest_micro_batch,
                    self.kinds,
                ),
                rule="one of the first two is given, sizes are at least 1, kinds are not empty",
            )

    def batch(self, gpus: int) -> int:
        """Return the sequences of a step on ``gpus``."""
        return self.global_batch or gpus * (self.samples_per_gpu or 0)

    def software(self, parallelism: Parallelism) -> SoftwareSpec:
        """Return the software stack of a parallelism."""
        if parallelism.model_parallel > 1:
            return MEGATRON
        return TORCHTITAN if self.compiled else FSDP


@dataclass(frozen=True)
class GpuPoint:
    """One count of GPUs; without ``step`` and ``parallelism`` if nothing fits their memory."""

    gpus: int
    samples_per_s: float
    tokens_per_s: float
    utilisation: float
    """Model FLOPs over the 16-bit peak of all GPUs, idle ones included (MFU)."""
    memory: GpuMemory
    """Memory of the chosen parallelism; if nothing fits, of the one that needs least."""
    parallelism: Parallelism | None = None
    step: StepTime | None = None

    @property
    def fits(self) -> bool:
        """Whether the model can be trained on this number of GPUs."""
        return self.step is not None


def gpu_curve(
    workload: Workload, cluster: GpuClusterSpec, policy: CurvePolicy, counts: Sequence[int]
) -> list[GpuPoint]:
    """Return the fastest parallelism kind that fits, for counts at which every GPU has a sample.

    DDP and ZeRO-3 use the FSDP software stack, or that of TorchTitan where they are compiled;
    tensor parallelism inside a node with a pipeline over nodes uses Megatron. A pipeline takes one
    sequence at a time; without one, micro-batches have any size and are as large as fits. If the
    ranks do not divide the batch, some wait for the others; GPUs that are too few for another copy
    of the model stay idle. A count with more copies than the batch has sequences gets no point.

    Raises:
        ConfigError: A count is below 1.
    """
    if any(count < 1 for count in counts):
        raise ConfigError(
            "a count of GPUs must be positive",
            code="gpu-count-not-positive",
            where="counts",
            value=min(counts),
            rule="at least 1",
        )
    points = (_point(workload, cluster, policy, count) for count in counts)
    return [point for point in points if point is not None]


def _point(
    workload: Workload, cluster: GpuClusterSpec, policy: CurvePolicy, gpus: int
) -> GpuPoint | None:
    """Return the fastest point that fits, or else the one that needs least memory.

    None if the batch has fewer sequences than the GPUs have copies of the model.
    """
    tried = [
        _timed(workload, cluster, policy, gpus, parallelism)
        for kind in policy.kinds
        for parallelism in _candidates(workload, cluster, policy, gpus, kind)
    ]
    fitting = [point for point in tried if point.fits]
    if fitting:
        return max(fitting, key=lambda point: point.samples_per_s)
    return min(tried, key=lambda point: point.memory.total_bytes, default=None)


def _timed(
    workload: Workload,
    cluster: GpuClusterSpec,
    policy: CurvePolicy,
    gpus: int,
    parallelism: Parallelism,
) -> GpuPoint:
    """Return the point of a parallelism, without a step if it does not fit."""
    software = policy.software(parallelism)
    used = gpus - gpus % parallelism.model_parallel
    memory = training_memory(workload, parallelism, used, software)
    if not memory.fits(cluster.gpu):
        return GpuPoint(gpus, 0.0, 0.0, 0.0, memory)
    step = step_time(workload, parallelism, used, cluster, software)
    samples_per_s = policy.batch(gpus) / step.total_s
    tokens_per_s = samples_per_s * workload.seq_len
    utilisation = model_flops_utilisation(workload, tokens_per_s, gpus, cluster)
    return GpuPoint(gpus, samples_per_s, tokens_per_s, utilisation, memory, parallelism, step)


def _candidates(
    workload: Workload, cluster: GpuClusterSpec, policy: CurvePolicy, gpus: int, kind: Kind
) -> Iterator[Parallelism]:
    """Yield the parallelisms to choose from, with the largest micro-batch that fits."""
    tensor = _power_of_two(min(gpus, cluster.gpus_per_node)) if kind == "tensor+pipeline" else 1
    recomputes: tuple[Recompute, ...] = ("none", "needed")
    for pipeline in _pipelines(workload, gpus // tensor, kind):
        ranks = gpus // (tensor * pipeline)
        if ranks > policy.batch(gpus):
            continue  # some copies of the model would have no sequence
        samples = -(-policy.batch(gpus) // ranks)
        for recompute in recomputes:
            single = Parallelism(
                "zero1" if kind == "tensor+pipeline" else kind,
                tensor,
                pipeline,
                micro_batches=samples,
                recompute=recompute,
                float8=policy.float8,
                overlap_tensor=tensor > 1,
            )
            yield single if pipeline > 1 else _filled(workload, cluster, policy, gpus, single)


def _filled(
    workload: Workload,
    cluster: GpuClusterSpec,
    policy: CurvePolicy,
    gpus: int,
    single: Parallelism,
) -> Parallelism:
    """Return a parallelism of single sequences with fewer, larger micro-batches.

    There are as few as memory allows, of equal size or, where that cannot be, one sequence less.
    """
    used = gpus - gpus % single.model_parallel
    memory = training_memory(workload, single, used, policy.software(single))
    samples, each = single.micro_batches, memory.activations_bytes
    room = memory.room_bytes(cluster.gpu) + each
    largest = min(samples, max(1, int(room / each)), policy.largest_micro_batch or samples)
    number = -(-samples // largest)
    return replace(single, micro_batch=-(-samples // number), micro_batches=number)


def _pipelines(workload: Workload, nodes: int, kind: Kind) -> list[int]:
    """Return the powers of two that a pipeline may have as its depth."""
    most = min(nodes, workload.layers) if kind == "tensor+pipeline" else 1
    return [1 << power for power in range(most.bit_length())]


def _power_of_two(most: int) -> int:
    """Return the largest power of two up to ``most``."""
    return 1 << (most.bit_length() - 1)


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on the GPU that holds the most."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float

    @property
    def total_bytes(self) -> float:
        """Sum of all parts."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
        )

    def room_bytes(self, gpu: GpuSpec) -> float:
        """Return what is left of the usable part of the GPU's memory; negative if it is full."""
        return gpu.hbm_bytes * gpu.usable_share - self.total_bytes

    def fits(self, gpu: GpuSpec) -> bool:
        """Return whether the total fits the usable part of the GPU's memory."""
        return self.room_bytes(gpu) >= 0


def training_memory(
    workload: Workload, parallelism: Parallelism, gpus: int, software: SoftwareSpec
) -> GpuMemory:
    """Return the bytes on one of ``gpus``; ConfigError if the degrees do not divide them."""
    ranks = parallelism.shards(gpus)
    parameters = workload.parameters / parallelism.model_parallel
    at_stage = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}[parallelism.sharding]
    weights = parameters * WEIGHT_BYTES
    states = 0.0 if parallelism.optimizer_threads else parameters * STATE_BYTES
    if at_stage == 3:
        # The own shard, and two gathered layers: one in use, one arriving.
        weights = weights / ranks + 2 * WEIGHT_BYTES * workload.layer_parameters
    return GpuMemory(
        weights_bytes=weights,
        gradients_bytes=parameters * software.gradient_bytes / (ranks if at_stage >= 2 else 1),
        optimizer_bytes=states / (ranks if at_stage >= 1 else 1),
        activations_bytes=_activations(workload, parallelism, software),
    )


def _activations(workload: Workload, parallelism: Parallelism, software: SoftwareSpec) -> float:
    """Return the activation bytes of the first stage, which holds most micro-batches (1F1B)."""
    tokens = parallelism.micro_batch * workload.seq_len / parallelism.context
    in_flight = min(parallelism.micro_batches, parallelism.pipeline)
    scores = software.stored_score_bytes * workload.heads * workload.seq_len
    layer = (LAYER_BYTES * workload.hidden + scores) * tokens
    boundary = WEIGHT_BYTES * workload.hidden * tokens
    layers = workload.layers / parallelism.pipeline * in_flight
    checkpoints = layers * boundary + layer
    kept = {
        "none": layers * layer,
        "selective": layers * layer / 2,
        "needed": checkpoints,
        "full": checkpoints,
    }[parallelism.recompute]
    return (kept + LOGIT_BYTES * workload.vocab * tokens) / parallelism.tensor
