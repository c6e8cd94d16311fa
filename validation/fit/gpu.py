"""Fit the constants of GPU software stacks by the logarithms of predicted over measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log

from validation.families.gpu import decode_rate, prefill_rate, training_rate
from validation.families.gpu_runs import GpuRun, gpu_run
from validation.fit.calibration import Constants, Fit, least_squares
from validation.rows.row import Row
from waferstream.baselines.gpu import (
    A100_80,
    AUTOCAST_DDP,
    DEEPSPEED,
    FSDP,
    H100,
    H100_500W,
    MEGATRON,
    NETWORK_200G,
    TORCHTITAN_EAGER,
    WAFERLLM_TESTBED,
    GpuClusterSpec,
)


def fit_fsdp(rows: Sequence[Row]) -> Constants:
    """Fit the sustained share of matrix products on A100 and H100 to training with FSDP."""

    def predict(row: Row, constants: Constants) -> float:
        run = gpu_run(row)
        chip = "A100_80" if run.cluster.gpu.name.startswith("A100") else "H100"
        share = constants[f"{chip}.matmul_share"]
        return training_rate(row, _with_gpu(run, matmul_share=share))

    start = {
        "A100_80.matmul_share": A100_80.matmul_share,
        "H100.matmul_share": H100.matmul_share,
    }
    return _fit(rows, predict, start)


def fit_torchtitan(rows: Sequence[Row]) -> Constants:
    """Fit the share of a capped H100, the gain of float8, the traffic of eager norms."""

    def predict(row: Row, constants: Constants) -> float:
        run = gpu_run(row)
        changed = {"float8_share": constants["FSDP.float8_share"]}
        if run.software == TORCHTITAN_EAGER:
            changed["hidden_passes"] = constants["TORCHTITAN_EAGER.hidden_passes"]
        share = constants["H100_500W.matmul_share"]
        return training_rate(row, _with_gpu(_with_software(run, **changed), matmul_share=share))

    start = {
        "H100_500W.matmul_share": H100_500W.matmul_share,
        "FSDP.float8_share": FSDP.float8_share,
        "TORCHTITAN_EAGER.hidden_passes": TORCHTITAN_EAGER.hidden_passes,
    }
    return _fit(rows, predict, start)


def fit_deepspeed(rows: Sequence[Row]) -> Constants:
    """Fit the traffic of unfused attention and the cost of misaligned heads and shards."""

    def predict(row: Row, constants: Constants) -> float:
        run = gpu_run(row)
        stack = "AUTOCAST_DDP" if run.parallelism.sharding == "ddp" else "DEEPSPEED"
        run = _with_software(run, score_bytes=constants[f"{stack}.score_bytes"])
        run = _with_gpu(run, misaligned_share=constants["A100_80.misaligned_share"])
        run = _with_network(run, misaligned_hops=constants["NETWORK_200G.misaligned_hops"])
        return training_rate(row, run)

    start = {
        "DEEPSPEED.score_bytes": DEEPSPEED.score_bytes,
        "AUTOCAST_DDP.score_bytes": AUTOCAST_DDP.score_bytes,
        "A100_80.misaligned_share": A100_80.misaligned_share,
        "NETWORK_200G.misaligned_hops": NETWORK_200G.misaligned_hops,
    }
    return _fit(rows, predict, start)


def fit_megatron(rows: Sequence[Row]) -> Constants:
    """Fit the speed of matrix products under tensor parallelism."""

    def predict(row: Row, constants: Constants) -> float:
        speed = constants["MEGATRON.matmul_speed"]
        return training_rate(row, _with_software(gpu_run(row), matmul_speed=speed))

    return _fit(rows, predict, {"MEGATRON.matmul_speed": MEGATRON.matmul_speed})


def fit_prefill(rows: Sequence[Row]) -> Constants:
    """Fit the bandwidth of the testbed's links to prompts."""
    nvlink = "WAFERLLM_A100.nvlink_bandwidth_bytes_per_s"
    nic = "WAFERLLM_NETWORK.nic_bandwidth_bytes_per_s"

    def predict(row: Row, constants: Constants) -> float:
        cluster = _testbed(
            {"nvlink_bandwidth_bytes_per_s": constants[nvlink]},
            {"nic_bandwidth_bytes_per_s": constants[nic]},
        )
        return prefill_rate(row, cluster)

    start = {
        nvlink: WAFERLLM_TESTBED.gpu.nvlink_bandwidth_bytes_per_s,
        nic: WAFERLLM_TESTBED.network.nic_bandwidth_bytes_per_s,
    }
    return _fit(rows, predict, start)


def fit_decode(rows: Sequence[Row]) -> Constants:
    """Fit the latencies of the testbed's links and the used share of HBM to decoded tokens."""

    def predict(row: Row, constants: Constants) -> float:
        hop_s = constants["WAFERLLM_NETWORK.tree_hop_s"]
        cluster = _testbed(
            {"hbm_share": constants["WAFERLLM_A100.hbm_share"]},
            {
                "nvlink_hop_s": constants["WAFERLLM_NETWORK.nvlink_hop_s"],
                "tree_hop_s": hop_s,
                "nic_hop_s": hop_s,
            },
        )
        return decode_rate(row, cluster)

    start = {
        "WAFERLLM_A100.hbm_share": WAFERLLM_TESTBED.gpu.hbm_share,
        "WAFERLLM_NETWORK.nvlink_hop_s": WAFERLLM_TESTBED.network.nvlink_hop_s,
        "WAFERLLM_NETWORK.tree_hop_s": WAFERLLM_TESTBED.network.tree_hop_s,
    }
    return _fit(rows, predict, start)


def _with_gpu(run: GpuRun, **changed: float) -> GpuRun:
    gpu = run.cluster.gpu.model_copy(update=changed)
    return replace(run, cluster=run.cluster.model_copy(update={"gpu": gpu}))


def _with_network(run: GpuRun, **changed: float) -> GpuRun:
    network = run.cluster.network.model_copy(update=changed)
    return replace(run, cluster=run.cluster.model_copy(update={"network": network}))


def _with_software(run: GpuRun, **changed: float) -> GpuRun:
    return replace(run, software=run.software.model_copy(update=changed))


def _testbed(gpu: Mapping[str, float], network: Mapping[str, float]) -> GpuClusterSpec:
    parts = {
        "gpu": WAFERLLM_TESTBED.gpu.model_copy(update=gpu),
        "network": WAFERLLM_TESTBED.network.model_copy(update=network),
    }
    return WAFERLLM_TESTBED.model_copy(update=parts)


def _fit(
    rows: Sequence[Row], predict: Callable[[Row, Constants], float], start: Constants
) -> Constants:
    return least_squares(
        lambda constants: [log(predict(row, constants) / float(row.value)) for row in rows], start
    )


FITS: tuple[Fit, ...] = (
    Fit("GPU training FSDP", fit_fsdp),
    Fit("GPU training TorchTitan", fit_torchtitan),
    Fit("GPU training DeepSpeed", fit_deepspeed),
    Fit("GPU training Megatron", fit_megatron),
    Fit("GPU inference prefill", fit_prefill),
    Fit("GPU inference decode", fit_decode),
)
