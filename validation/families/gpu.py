"""Predict GPU rows: training by software stack, and inference with tensor parallelism."""

from __future__ import annotations

import re
from collections.abc import Callable

from validation.families.gpu_runs import GpuRun, gpu_run
from validation.families.prediction import Family
from validation.rows.decoders import (
    check_one_request,
    named_decoder,
    prompt_and_output,
)
from validation.rows.gpu import PYTHIA_BATCH, PYTHIA_STEPS
from validation.rows.row import CannotPredict, Row
from validation.rows.units import SECONDS, in_token_unit, in_training_unit, measure
from waferstream.baselines.gpu.clusters import DGX_A100, WAFERLLM_TESTBED
from waferstream.baselines.gpu.hardware import GpuClusterSpec
from waferstream.baselines.gpu.inference import (
    decode_s_per_token,
    prefill_s,
    request_s,
)
from waferstream.baselines.gpu.step import model_flops_utilisation, step_time
from waferstream.machine.energy import SECONDS_PER_HOUR

_CLUSTERS = {
    "WaferLLM": WAFERLLM_TESTBED,
    "lmdeploy": DGX_A100,
    "gpt-fast": DGX_A100,
    "TensorRT-LLM": DGX_A100,
}
"""Clusters of inference by the first words of their names; those of no stated link have NVLink."""

_PREFIXES = {"T": 1e12, "P": 1e15, "E": 1e18}


def training_rate(row: Row, run: GpuRun) -> float:
    """Return throughput, step time, FLOP/s, utilisation, or GPU-hours (Pythia)."""
    step = step_time(run.workload, run.parallelism, run.gpus, run.cluster, run.software)
    utilisation = model_flops_utilisation(run.workload, step.tokens_per_s, run.gpus, run.cluster)
    if row.unit == "% MFU":
        return 100 * utilisation
    if (unit := re.match(r"([TPE])FLOPs?/s(/GPU)?$", measure(row.unit))) is not None:
        of_one = utilisation * run.cluster.gpu.flops_16bit_per_s
        return of_one * (1 if unit[2] else run.gpus) / _PREFIXES[unit[1]]
    if row.unit.startswith("GPU-hours") and "Pythia" in row.text("workload"):
        steps_s = PYTHIA_STEPS * PYTHIA_BATCH / step.samples_per_s
        return run.gpus * steps_s / SECONDS_PER_HOUR
    return in_training_unit(row, step.samples_per_s, step.samples, run.workload.seq_len, run.gpus)


def serving_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Return the rate of a row of inference, or the time of its prompt."""
    rate = next(rate for words, rate in _RATES.items() if words in row.text("workload"))
    return rate(row, cluster)


def serving_cluster(row: Row) -> GpuClusterSpec:
    """Return the cluster of a row of inference: an A100 that serves one request at a time."""
    check_one_request(row)
    clusters = (known for name, known in _CLUSTERS.items() if row.text("cluster").startswith(name))
    cluster = next(clusters, None)
    if cluster is None or not row.text("gpu").startswith("A100"):
        raise CannotPredict(
            f"no calibration row of a {row.text('gpu')} of {row.text('cluster')}",
            code="no-calibration-row",
        )
    return cluster


def prefill_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Return prompt tokens per second, or the time to the first token."""
    tokens, gpus = row.count("seq_len"), row.count("n_gpus")
    seconds = prefill_s(named_decoder(row), tokens, gpus, cluster)
    if row.unit in SECONDS:
        return seconds / SECONDS[row.unit]
    return in_token_unit(row, tokens / seconds)


def decode_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Return tokens per second at the context of the row."""
    tokens, gpus = row.count("seq_len"), row.count("n_gpus")
    seconds = decode_s_per_token(named_decoder(row), tokens, gpus, cluster)
    return in_token_unit(row, 1 / seconds)


def request_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Return output tokens per second of prefill and decode (WaferLLM, section 7.1).

    Raises CannotPredict for those requests of WaferLLM that its own tables of prefill and decode,
    and lmdeploy on the same chip, contradict: a token of theirs takes 2.0 to 2.4 times as long.
    """
    (prompt, output), gpus = prompt_and_output(row), row.count("n_gpus")
    if row.text("cluster").startswith("WaferLLM") and (prompt, output) != (4096, 4096):
        raise CannotPredict(
            "tables 3 and 4 of the source, and lmdeploy on the same chip, exclude the rate; what"
            " was measured is not published",
            code="source-contradicts-itself",
        )
    seconds = request_s(named_decoder(row), prompt, output, gpus, cluster)
    return in_token_unit(row, output / seconds)


def _predict_training(row: Row) -> float:
    return training_rate(row, gpu_run(row))


def _predict_serving(row: Row) -> float:
    return serving_rate(row, serving_cluster(row))


def _predict_other(row: Row) -> float:
    if row.text("phase") != "train":
        raise CannotPredict(f"no model for {row.text('workload')} on GPUs", code="no-family")
    return _predict_training(row)


def _of_cluster(*names: str) -> Callable[[Row], bool]:
    def knows(row: Row) -> bool:
        return _is_gpu(row, "train") and row.text("cluster").startswith(names)

    return knows


def _of_phase(words: str) -> Callable[[Row], bool]:
    return lambda row: _is_gpu(row, "inference") and words in row.text("workload")


_RATES: dict[str, Callable[[Row, GpuClusterSpec], float]] = {
    "prefill": prefill_rate,
    "decode": decode_rate,
    "end-to-end": request_rate,
}
"""Rates of inference by the word of the workload."""


def _is_gpu(row: Row, phase: str) -> bool:
    return row.kind == "gpu" and row.text("phase") == phase


FAMILIES: tuple[Family, ...] = (
    Family("GPU training FSDP", _of_cluster("MosaicML"), _predict_training),
    Family("GPU training TorchTitan", _of_cluster("Meta", "WhiteFiber"), _predict_training),
    Family("GPU training DeepSpeed", _of_cluster("Selene"), _predict_training),
    Family("GPU training Megatron", _of_cluster("NVIDIA"), _predict_training),
    Family("GPU inference prefill", _of_phase("prefill"), _predict_serving),
    Family("GPU inference decode", _of_phase("decode"), _predict_serving),
    Family("GPU inference requests", _of_phase("end-to-end"), _predict_serving),
    Family("GPU training uncalibrated", lambda row: row.kind == "gpu", _predict_other),
)
