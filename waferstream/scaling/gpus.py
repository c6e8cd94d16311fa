"""GPU clusters beside ours in the scaling experiment: the same model and batch, from a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from baselines.gpu import (
    DGX_A100,
    DGX_H100,
    KINDS,
    CurvePolicy,
    GpuClusterSpec,
    GpuPoint,
    Workload,
    gpu_curve,
)
from baselines.gpu.curve import Kind
from modelzoo.models.registry import model_config
from modelzoo.models.transformer_config import LanguageConfig
from waferstream.config.params import Params

CLUSTERS: tuple[GpuClusterSpec, ...] = (DGX_A100, DGX_H100)
MOST_GPUS = 1024
ERROR = (
    "GPUs are a model, fitted on 12 and checked on 90 other published rows of sharded data "
    "parallel training: 4.3 % mean error. Tensor and pipeline parallelism rest on a single row."
)
"""What the comparison is worth (docs/fidelity.md, GPU training FSDP and Megatron)."""
WAYS: Mapping[Kind, str] = {
    "ddp": "DDP",
    "zero3": "ZeRO-3 / FSDP",
    "tensor+pipeline": "tensor + pipeline",
}
NO_TOKENS = "No GPU curves: the model of GPUs knows transformers over tokens alone."


@dataclass(frozen=True)
class GpuCurve:
    """One way to train on one kind of GPU; a point that does not fit has a rate of 0."""

    gpu: str
    kind: Kind
    points: tuple[GpuPoint, ...]

    @property
    def name(self) -> str:
        """``"H100 DDP"``."""
        return f"{self.gpu} {WAYS[self.kind]}"

    @property
    def fitting(self) -> tuple[GpuPoint, ...]:
        """Points at which the model fits the memory of the GPUs."""
        return tuple(point for point in self.points if point.fits)


@dataclass(frozen=True)
class GpuComparison:
    """All curves, or none, and what to know about them."""

    curves: tuple[GpuCurve, ...]
    note: str


def compare_with_gpus(params: Params, parameters: int) -> GpuComparison:
    """Curves for a training run with ``parameters`` weights: its global batch on 1 to 1,024 GPUs.

    Raises ConfigError if the model section is wrong.
    """
    workload = workload_of(params, parameters)
    if workload is None or params.trainer.fit is None:
        return GpuComparison((), NO_TOKENS)
    batch = params.trainer.fit.train_dataloader.batch_size
    counts = gpu_counts(batch)
    curves = tuple(
        GpuCurve(
            cluster.gpu.name,
            kind,
            tuple(gpu_curve(workload, cluster, CurvePolicy(batch, kinds=(kind,)), counts)),
        )
        for cluster in CLUSTERS
        for kind in KINDS
    )
    missing = ", ".join(curve.name for curve in curves if not curve.fitting)
    note = f"{ERROR} Nowhere does the model fit {missing}." if missing else ERROR
    return GpuComparison(curves, note)


def gpu_counts(batch_size: int) -> Sequence[int]:
    """Powers of two, up to a node of eight GPUs for each sample."""
    most = min(MOST_GPUS, 8 * batch_size)
    return [1 << power for power in range(most.bit_length())]


def workload_of(params: Params, parameters: int) -> Workload | None:
    """What is trained, as the model of GPUs sees it; None unless it reads tokens."""
    config = model_config(params.trainer.init.model.dump(), "trainer.init.model")
    fit = params.trainer.fit
    if fit is None or not isinstance(config, LanguageConfig):
        return None
    length = fit.train_dataloader.dump().get("max_sequence_length")
    return Workload(
        parameters=parameters,
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_heads,
        seq_len=length or config.max_position_embeddings,
        vocab=config.vocab_size,
        tied_embeddings=config.share_embedding_weights,
        learned_positions=config.position_embedding_type == "learned",
    )
