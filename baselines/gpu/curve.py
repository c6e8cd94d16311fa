"""How training scales over the number of GPUs, with a parallelism that fits their memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from baselines.gpu.hardware import GpuClusterSpec
from baselines.gpu.memory import GpuMemory, training_memory
from baselines.gpu.parallelism import Parallelism, Recompute
from baselines.gpu.software import FSDP, MEGATRON
from baselines.gpu.step import StepTime, model_flops_utilisation, step_time
from baselines.gpu.workload import Workload
from wsc.core.errors import ConfigError

Kind = Literal["ddp", "zero3", "tensor+pipeline"]
KINDS: tuple[Kind, ...] = ("ddp", "zero3", "tensor+pipeline")


@dataclass(frozen=True)
class CurvePolicy:
    """What holds along a curve; ConfigError unless exactly one of the two batches is given."""

    global_batch: int | None = None
    """Sequences of a step, on however many GPUs: strong scaling."""
    samples_per_gpu: int | None = None
    """Sequences of a step for every GPU: weak scaling."""
    kinds: tuple[Kind, ...] = KINDS
    """Of parallelism to choose from."""
    largest_micro_batch: int = 16
    float8: bool = False

    def __post_init__(self) -> None:
        given = [size for size in (self.global_batch, self.samples_per_gpu) if size is not None]
        if len(given) != 1 or given[0] < 1 or self.largest_micro_batch < 1 or not self.kinds:
            raise ConfigError(
                "the policy of a curve settles no batch, micro-batch or kind of parallelism",
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
        """Sequences of a step on so many GPUs."""
        return self.global_batch or gpus * (self.samples_per_gpu or 0)


@dataclass(frozen=True)
class GpuPoint:
    """One count of GPUs; without ``step`` and ``parallelism`` where nothing fits their memory."""

    gpus: int
    samples_per_s: float
    tokens_per_s: float
    utilisation: float
    """Model FLOPs over the 16-bit peak of all GPUs, idle ones included (MFU)."""
    memory: GpuMemory
    """Of the way chosen; where nothing fits, of the one that needs least."""
    parallelism: Parallelism | None = None
    step: StepTime | None = None

    @property
    def fits(self) -> bool:
        """Whether the model can be trained on so many GPUs."""
        return self.step is not None


def gpu_curve(
    workload: Workload, cluster: GpuClusterSpec, policy: CurvePolicy, counts: Sequence[int]
) -> list[GpuPoint]:
    """A point for every count of GPUs: the fastest kind of parallelism that fits.

    DDP and ZeRO-3 run as FSDP does; tensor parallelism inside a node with a pipeline over nodes
    runs as Megatron does. A pipeline takes one sequence at a time; without one, micro-batches are
    as large as fit. Ranks that the batch does not divide by wait for the others; GPUs that no copy
    of the model or no sequence is left for stay idle. Raises ConfigError for a count below 1.
    """
    if any(count < 1 for count in counts):
        raise ConfigError(
            "a count of GPUs is not positive", where="counts", value=min(counts), rule="at least 1"
        )
    return [_point(workload, cluster, policy, count) for count in counts]


def _point(workload: Workload, cluster: GpuClusterSpec, policy: CurvePolicy, gpus: int) -> GpuPoint:
    tried = [
        _first_fit(workload, cluster, policy, gpus, ways)
        for kind in policy.kinds
        for ways in _ways(workload, cluster, policy, gpus, kind)
    ]
    fitting = [point for point in tried if point.fits]
    if fitting:
        return max(fitting, key=lambda point: point.samples_per_s)
    return min(tried, key=lambda point: point.memory.total_bytes)


def _first_fit(
    workload: Workload,
    cluster: GpuClusterSpec,
    policy: CurvePolicy,
    gpus: int,
    ways: Sequence[Parallelism],
) -> GpuPoint:
    """Of ways that differ in the micro-batch, the first that fits; ranks without work stay idle."""
    for parallelism in ways:
        software = MEGATRON if parallelism.model_parallel > 1 else FSDP
        ranks = min(gpus // parallelism.model_parallel, policy.batch(gpus))
        used = ranks * parallelism.model_parallel
        memory = training_memory(workload, parallelism, used, software)
        if memory.fits(cluster.gpu):
            step = step_time(workload, parallelism, used, cluster, software)
            samples_per_s = policy.batch(gpus) / step.total_s
            tokens_per_s = samples_per_s * workload.seq_len
            utilisation = model_flops_utilisation(workload, tokens_per_s, gpus, cluster)
            return GpuPoint(
                gpus, samples_per_s, tokens_per_s, utilisation, memory, parallelism, step
            )
    return GpuPoint(gpus, 0.0, 0.0, 0.0, memory)


def _ways(
    workload: Workload, cluster: GpuClusterSpec, policy: CurvePolicy, gpus: int, kind: Kind
) -> Iterator[list[Parallelism]]:
    """Ways to train, those that differ in the micro-batch alone together, the largest first."""
    tensor = _power_of_two(min(gpus, cluster.gpus_per_node)) if kind == "tensor+pipeline" else 1
    recomputes: tuple[Recompute, ...] = ("none", "full")
    for pipeline in _pipelines(workload, gpus // tensor, kind):
        ranks = min(gpus // (tensor * pipeline), policy.batch(gpus))
        samples = -(-policy.batch(gpus) // ranks)
        largest = 1 if pipeline > 1 else _power_of_two(min(policy.largest_micro_batch, samples))
        for recompute in recomputes:
            yield [
                Parallelism(
                    "zero1" if kind == "tensor+pipeline" else kind,
                    tensor,
                    pipeline,
                    micro_batch=1 << power,
                    micro_batches=-(-samples // (1 << power)),
                    recompute=recompute,
                    float8=policy.float8,
                    overlap_tensor=tensor > 1,
                )
                for power in reversed(range(largest.bit_length()))
            ]


def _pipelines(workload: Workload, nodes: int, kind: Kind) -> list[int]:
    most = min(nodes, workload.layers) if kind == "tensor+pipeline" else 1
    return [1 << power for power in range(most.bit_length())]


def _power_of_two(most: int) -> int:
    return 1 << (most.bit_length() - 1)
