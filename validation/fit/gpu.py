"""Fit the constants of GPU software stacks by the logarithms of predicted over measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log

from validation.families.gpu import serving_cluster, serving_rate, training_rate
from validation.families.gpu_runs import GpuRun, gpu_run
from validation.fit.calibration import Constants, Fit, least_squares
from validation.rows.row import Row
from waferstream.baselines.gpu.chips import A100_40, A100_80, B200, H100, H200
from waferstream.baselines.gpu.hardware import GpuSpec
from waferstream.baselines.gpu.software import (
    AUTOCAST_DDP,
    DEEPSPEED,
    FP32_SCORE_BYTES,
    FSDP,
    GPT_NEOX_TENSOR,
    MEGATRON,
    TORCHTITAN_TENSOR,
)


def fit_training(rows: Sequence[Row]) -> Constants:
    """Fit chips and software stacks together to all training rows.

    The shares of chips are fitted with all stacks that run on them, those of stacks on all chips.
    """
    return _fit(rows, _predict_training, dict(_TRAINING))


def _predict_training(row: Row, constants: Constants) -> float:
    """Predict the throughput of a row of training with these constants."""
    return training_rate(row, _with_constants(gpu_run(row), constants))


def fit_inference(rows: Sequence[Row]) -> Constants:
    """Fit the time of a small kernel to prompts, tokens and requests of all serving stacks."""
    return _fit(rows, _predict_inference, {"A100_80.kernel_s": A100_80.kernel_s})


def _predict_inference(row: Row, constants: Constants) -> float:
    cluster = serving_cluster(row)
    gpu = cluster.gpu.model_copy(update={"kernel_s": constants["A100_80.kernel_s"]})
    return serving_rate(row, cluster.model_copy(update={"gpu": gpu}))


_TRAINING: Constants = {
    "A100_80.matmul_share": A100_80.matmul_share,
    "H100.matmul_share": H100.matmul_share,
    "B200.matmul_share": B200.matmul_share,
    "FSDP.float8_share": FSDP.float8_share,
    "DEEPSPEED.score_bytes": DEEPSPEED.score_bytes,
    "DEEPSPEED.exposed_bytes_share": DEEPSPEED.exposed_bytes_share,
    "MEGATRON.matmul_speed": MEGATRON.matmul_speed,
}
"""Fitted constants of training, as they are in use."""


def _with_constants(run: GpuRun, constants: Constants) -> GpuRun:
    """Return a run with other values of those constants that it depends on."""
    software = {"float8_share": constants["FSDP.float8_share"]}
    scores = constants["DEEPSPEED.score_bytes"]
    match run.software:
        case s if s == DEEPSPEED:
            software["score_bytes"] = scores
            software["exposed_bytes_share"] = constants["DEEPSPEED.exposed_bytes_share"]
        case s if s == AUTOCAST_DDP:
            software["score_bytes"] = scores + FP32_SCORE_BYTES
        case s if s in (MEGATRON, TORCHTITAN_TENSOR, GPT_NEOX_TENSOR):
            software["matmul_speed"] = constants["MEGATRON.matmul_speed"]
    run = _with_software(run, **software)
    share = next((name for name, chips in _CHIPS.items() if run.cluster.gpu in chips), None)
    return run if share is None else _with_gpu(run, matmul_share=constants[share])


_CHIPS: Mapping[str, tuple[GpuSpec, ...]] = {
    "A100_80.matmul_share": (A100_80, A100_40),
    "H100.matmul_share": (H100, H200),
    "B200.matmul_share": (B200,),
}
"""Chips of each fitted share of matrix products; that of an H100 at 500 W is assumed."""


def _with_gpu(run: GpuRun, **changed: float) -> GpuRun:
    gpu = run.cluster.gpu.model_copy(update=changed)
    return replace(run, cluster=run.cluster.model_copy(update={"gpu": gpu}))


def _with_software(run: GpuRun, **changed: float) -> GpuRun:
    return replace(run, software=run.software.model_copy(update=changed))


def _fit(
    rows: Sequence[Row], predict: Callable[[Row, Constants], float], start: Constants
) -> Constants:
    return least_squares(
        lambda constants: [log(predict(row, constants) / float(row.value)) for row in rows], start
    )


FITS: tuple[Fit, ...] = (
    Fit("GPU training", fit_training, _predict_training),
    Fit("GPU inference", fit_inference, _predict_inference),
)
