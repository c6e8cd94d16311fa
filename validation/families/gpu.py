"""Replays of GPU rows: training by software stack, and inference with tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable

from baselines.gpu import WAFERLLM_TESTBED, GpuClusterSpec
from validation.families.gpu_rates import decode_rate, prefill_rate, request_rate, training_rate
from validation.families.replay import CannotReplay, Family, Fit
from validation.fit.gpu import (
    fit_decode,
    fit_deepspeed,
    fit_fsdp,
    fit_megatron,
    fit_prefill,
    fit_torchtitan,
)
from validation.rows.cells import check_one_request
from validation.rows.gpu_runs import gpu_run
from validation.rows.row import Row


def predict_training(row: Row) -> float:
    """In the unit of the row; CannotReplay if it leaves too much unsaid."""
    return training_rate(row, gpu_run(row))


def predict_prefill(row: Row) -> float:
    """Prompt tokens per second on the WaferLLM testbed."""
    return prefill_rate(row, _testbed(row))


def predict_decode(row: Row) -> float:
    """Tokens per second on the WaferLLM testbed."""
    return decode_rate(row, _testbed(row))


def predict_request(row: Row) -> float:
    """Output tokens per second of whole requests on the WaferLLM testbed."""
    return request_rate(row, _testbed(row))


def _predict_other(row: Row) -> float:
    if row.text("phase") != "train":
        raise CannotReplay(f"no model for {row.text('workload')} on GPUs")
    return predict_training(row)


def _testbed(row: Row) -> GpuClusterSpec:
    """The only one with calibration rows, with A100 and one request at a time."""
    check_one_request(row)
    if not (row.text("cluster").startswith("WaferLLM") and row.text("gpu").startswith("A100")):
        raise CannotReplay(f"no calibration row of a {row.text('gpu')} of {row.text('cluster')}")
    return WAFERLLM_TESTBED


def _of_cluster(*names: str) -> Callable[[Row], bool]:
    def knows(row: Row) -> bool:
        return _is_gpu(row, "train") and row.text("cluster").startswith(names)

    return knows


def _of_phase(words: str) -> Callable[[Row], bool]:
    return lambda row: _is_gpu(row, "inference") and words in row.text("workload")


def _is_gpu(row: Row, phase: str) -> bool:
    return row.kind == "gpu" and row.text("phase") == phase


FAMILIES = (
    Family("GPU training FSDP", _of_cluster("MosaicML"), predict_training),
    Family("GPU training TorchTitan", _of_cluster("Meta", "WhiteFiber"), predict_training),
    Family("GPU training DeepSpeed", _of_cluster("Selene"), predict_training),
    Family("GPU training Megatron", _of_cluster("NVIDIA"), predict_training),
    Family("GPU inference prefill", _of_phase("prefill"), predict_prefill),
    Family("GPU inference decode", _of_phase("decode"), predict_decode),
    Family("GPU inference requests", _of_phase("end-to-end"), predict_request),
    Family("GPU training uncalibrated", lambda row: row.kind == "gpu", _predict_other),
)
FITS = (
    Fit("GPU training FSDP", fit_fsdp),
    Fit("GPU training TorchTitan", fit_torchtitan),
    Fit("GPU training DeepSpeed", fit_deepspeed),
    Fit("GPU training Megatron", fit_megatron),
    Fit("GPU inference prefill", fit_prefill),
    Fit("GPU inference decode", fit_decode),
)
