"""GPU clusters to compare a curve with: the same model and global batch, modelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from waferstream.baselines.gpu import (
    DGX_A100,
    DGX_B200,
    DGX_H100,
    KINDS,
    CurvePolicy,
    GpuClusterSpec,
    Workload,
    gpu_curve,
)
from waferstream.baselines.gpu.curve import Kind
from waferstream.baselines.gpu.power import gpu_hour
from waferstream.config.params import Params
from waferstream.core.units import format_count
from waferstream.machine.energy import SECONDS_PER_HOUR
from waferstream.machine.hardware import PowerSpec
from waferstream.machine.intervals import interval_of
from waferstream.machine.intervals.setting import training_setting
from waferstream.reports.curve.result import GpuComparison, GpuCurve
from waferstream.workload.data import packing_of
from waferstream.workload.models import known_config

CLUSTERS: tuple[GpuClusterSpec, ...] = (DGX_A100, DGX_H100, DGX_B200)
_MILLION = 1e6
MOST_GPUS = 1024
"""Largest cluster that is compared."""
ACCURACY_NOTE = (
    "GPU throughput is modelled: ZeRO-3 and ZeRO-2 are fitted on 11 and checked on 90 other "
    "published rows, 3.4 % mean error, with 124M to 65B parameters on 8 to 256 GPUs; 3D (tensor, "
    "pipeline and data parallelism) on 7 and 17, 6.4 %, with 5B to 405B on 8 to 1,024 GPUs. "
    "Extrapolated: all beyond, and DDP."
)
"""Accuracy of the GPU model (docs/fidelity.md, GPU training FSDP and Megatron)."""
SMALLEST_MODEL = 124_131_840
"""Parameters of the smallest model of a validation row of sharded data parallelism (G0138)."""
_FAMILIES: Mapping[Kind, str] = {
    "ddp": "GPU training FSDP",
    "zero3": "GPU training FSDP",
    "tensor+pipeline": "GPU training Megatron",
}
"""Published rows of the software that a strategy is modelled with."""
NO_TOKENS_NOTE = (
    "No GPU curves: the GPU model covers transformers over tokens, whose sizes it takes from a "
    "registered model (`model: {name: ...}`)."
)


def compare_with_gpus(
    params: Params, parameters: int, site: PowerSpec, weak: bool = False
) -> GpuComparison:
    """Return the curves of GPU clusters that train the same global batch on 1 to 1,024 GPUs.

    A curve ends where a GPU would have no sample. There is none for a model below the smallest
    one of a published run: its kernels are so short that software decides, which is not modelled.

    Args:
        params: The training configuration.
        parameters: Number of parameters of its model.
        site: Cooling, carbon dioxide and price of energy.
        weak: Whether the batch is that of each GPU instead of all.

    Raises:
        ConfigError: The model section is wrong.
    """
    workload = workload_of(params, parameters)
    if workload is None or params.trainer.fit is None:
        return GpuComparison((), NO_TOKENS_NOTE)
    if parameters < SMALLEST_MODEL:
        return GpuComparison((), too_small_note(parameters))
    batch = params.trainer.fit.train_dataloader.batch_size
    counts = gpu_counts(MOST_GPUS if weak else batch)
    total, each = (None, batch) if weak else (batch, None)
    packing = packing_of(params.trainer.fit.train_dataloader.dump(), "trainer.fit.train_dataloader")
    share = 1.0 if packing is None else packing.share
    curves = tuple(
        _curve(workload, cluster, CurvePolicy(total, each, kinds=(kind,)), counts, site, share)
        for cluster in CLUSTERS
        for kind in KINDS
    )
    missing = ", ".join(curve.name for curve in curves if not curve.fitting)
    note = f"{ACCURACY_NOTE} The model fits at no count of {missing}." if missing else ACCURACY_NOTE
    return GpuComparison(curves, note)


def _curve(
    workload: Workload,
    cluster: GpuClusterSpec,
    policy: CurvePolicy,
    counts: Sequence[int],
    site: PowerSpec,
    share: float,
) -> GpuCurve:
    """Return the curve of one kind of parallelism, with its intervals and footprints.

    ``share`` is that of the places of a sequence that hold a token.
    """
    points = tuple(gpu_curve(workload, cluster, policy, counts))
    footprints = tuple(
        gpu_hour(cluster, point.gpus, site).times(
            _MILLION / (share * point.tokens_per_s) / SECONDS_PER_HOUR
        )
        if point.fits
        else None
        for point in points
    )
    intervals = tuple(
        interval_of(
            training_setting(
                _FAMILIES[policy.kinds[0]],
                cluster.gpu.name,
                cluster.gpu.flops_16bit_per_s,
                workload.parameters,
                workload.seq_len,
                policy.batch(point.gpus),
                point.gpus,
            )
        )
        for point in points
    )
    return GpuCurve(cluster.gpu.name, policy.kinds[0], points, footprints, intervals)


def too_small_note(parameters: int) -> str:
    """Return why a small model is not compared with GPU clusters."""
    return (
        f"No GPU curves: the model has {format_count(parameters)} parameters, and the smallest one "
        f"of a published run that checks the GPU model has {format_count(SMALLEST_MODEL)}."
    )


def gpu_counts(batch_size: int) -> Sequence[int]:
    """Return powers of two, up to a node of eight GPUs for each sample: its tensor parallelism."""
    most = min(MOST_GPUS, 8 * batch_size)
    return [1 << power for power in range(most.bit_length())]


def workload_of(params: Params, parameters: int) -> Workload | None:
    """Return the training workload for the GPU model; None unless the model reads tokens."""
    config = known_config(params.trainer.init.model.dump(), "trainer.init.model")
    sizes = None if config is None else config.language_sizes
    fit = params.trainer.fit
    if fit is None or sizes is None:
        return None
    length = fit.train_dataloader.dump().get("max_sequence_length")
    return Workload(
        parameters=parameters,
        hidden=sizes.hidden,
        layers=sizes.layers,
        heads=sizes.heads,
        seq_len=length or sizes.max_length,
        vocab=sizes.vocab,
        tied_embeddings=sizes.tied_embeddings,
        learned_positions=sizes.learned_positions,
    )
