"""GPU clusters to compare a curve with: the same model and global batch, modelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from waferstream.baselines.gpu.clusters import DGX_A100, DGX_B200, DGX_H100, DGX_H200
from waferstream.baselines.gpu.curve import KINDS, CurvePolicy, Kind, gpu_curve
from waferstream.baselines.gpu.hardware import GpuClusterSpec
from waferstream.baselines.gpu.power import gpu_hour
from waferstream.baselines.gpu.workload import Workload
from waferstream.core.units import format_count
from waferstream.machine.energy import SECONDS_PER_HOUR
from waferstream.machine.hardware import PowerSpec
from waferstream.machine.intervals import interval_of
from waferstream.machine.intervals.setting import training_setting
from waferstream.reports.curve.result import GpuComparison, GpuCurve

CLUSTERS: Mapping[str, GpuClusterSpec] = {
    "A100": DGX_A100,
    "H100": DGX_H100,
    "H200": DGX_H200,
    "B200": DGX_B200,
}
"""Clusters by the name of their GPU."""
SHOWN = ("A100", "H100", "B200")
"""GPUs beside every simulation."""
_MILLION = 1e6
MOST_GPUS = 1024
"""Largest cluster that is compared."""
ACCURACY_NOTE = (
    "GPU throughput is modelled: ZeRO-3 and ZeRO-2 are fitted on 11 and checked on 90 other "
    "published rows, 3.4 % mean error, with 124M to 65B parameters on 8 to 256 GPUs; 3D (tensor, "
    "pipeline and data parallelism) on 7 and 17, 6.4 %, with 5B to 405B on 8 to 1,024 GPUs. "
    "Extrapolated (*): all beyond, and DDP."
)
"""Accuracy of the GPU model (docs/fidelity.md, GPU training FSDP and Megatron)."""


class Published(NamedTuple):
    """Models and clusters of the published runs that check the model of a strategy."""

    least_parameters: int
    most_parameters: int
    least_gpus: int
    most_gpus: int


PUBLISHED: Mapping[Kind, Published] = {
    "zero3": Published(124_131_840, 66_000_000_000, 8, 256),
    "tensor+pipeline": Published(5_000_000_000, 406_000_000_000, 8, 1024),
}
"""Published runs by strategy; DDP has none."""
_FAMILIES: Mapping[Kind, str] = {
    "ddp": "GPU training FSDP",
    "zero3": "GPU training FSDP",
    "tensor+pipeline": "GPU training Megatron",
}
"""Published rows of the software that a strategy is modelled with."""
NO_TOKENS_NOTE = (
    "No GPU curves: the GPU model covers dense transformers over tokens, all of whose weights "
    "multiply every token."
)


def compare_with_gpus(
    workload: Workload | None,
    batch_size: int,
    site: PowerSpec,
    gpus: Sequence[str] = SHOWN,
    counts: Sequence[int] | None = None,
    *,
    share: float = 1.0,
    weak: bool = False,
    compiled: bool = False,
) -> GpuComparison:
    """Return the curves of GPU clusters that train the same global batch.

    A curve ends where a GPU would have no sample.

    Args:
        workload: The model and its sequences; None for one that the GPU model does not cover.
        batch_size: Samples of a step over all GPUs or, where ``weak``, of each.
        site: Cooling, carbon dioxide and price of energy.
        gpus: Names of ``CLUSTERS``.
        counts: Numbers of GPUs; by default powers of two up to 1,024.
        share: Share of the places of a sequence that hold a token, and no padding.
        weak: Whether the batch is that of each GPU.
        compiled: Whether DDP and ZeRO-3 run with torch.compile.
    """
    if workload is None:
        return GpuComparison((), NO_TOKENS_NOTE)
    counts = counts or gpu_counts(MOST_GPUS if weak else batch_size)
    total, each = (None, batch_size) if weak else (batch_size, None)
    curves = tuple(
        _curve(
            workload,
            CLUSTERS[gpu],
            CurvePolicy(total, each, kinds=(kind,), compiled=compiled),
            counts,
            site,
            share,
        )
        for gpu in gpus
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

    ``share`` is that of the places of a sequence that hold a token, of which rates count these.
    """
    points = tuple(
        replace(point, tokens_per_s=share * point.tokens_per_s)
        for point in gpu_curve(workload, cluster, policy, counts)
    )
    footprints = tuple(
        gpu_hour(cluster, point.gpus, site).times(_MILLION / point.tokens_per_s / SECONDS_PER_HOUR)
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
    extrapolated = tuple(
        extrapolation(policy.kinds[0], workload.parameters, point.gpus) for point in points
    )
    return GpuCurve(cluster.gpu.name, policy.kinds[0], points, footprints, intervals, extrapolated)


def extrapolation(kind: Kind, parameters: int, gpus: int) -> str:
    """Return how a point lies beyond the published runs of its strategy; nothing if it does not."""
    if kind not in PUBLISHED:
        return "no published run"
    known = PUBLISHED[kind]
    if not known.least_parameters <= parameters <= known.most_parameters:
        ends = f"{format_count(known.least_parameters)} to {format_count(known.most_parameters)}"
        return f"published runs have {ends} parameters"
    if not known.least_gpus <= gpus <= known.most_gpus:
        return f"published runs have {known.least_gpus:,} to {known.most_gpus:,} GPUs"
    return ""


def gpu_counts(batch_size: int) -> Sequence[int]:
    """Return powers of two, up to a node of eight GPUs for each sample: its tensor parallelism."""
    most = min(MOST_GPUS, 8 * batch_size)
    return [1 << power for power in range(most.bit_length())]
