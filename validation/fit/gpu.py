"""How the constants of GPU stacks follow from calibration rows.

Least squares of the logarithms of predicted over measured, over the logarithms of the constants, by
damped Gauss-Newton steps; every stack has one to four constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from baselines.gpu import (
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
from validation.families.gpu_rates import decode_rate, prefill_rate, training_rate
from validation.rows.gpu_runs import GpuRun, gpu_run
from validation.rows.row import Row

Constants = dict[str, float]

_STEP = 1e-4
_MOST_STEPS = 100


def fit_fsdp(rows: Sequence[Row]) -> Constants:
    """What matrix products sustain on A100 and H100, from training with FSDP."""

    def predict(row: Row, constants: Constants) -> float:
        run = gpu_run(row)
        chip = "A100_80" if run.cluster.gpu.name.startswith("A100") else "H100"
        share = constants[f"{chip}.matmul_share"]
        return training_rate(row, _with_gpu(run, matmul_share=share))

    start = {
        "A100_80.matmul_share": A100_80.matmul_share,
        "H100.matmul_share": H100.matmul_share,
    }
    return _least_squares(rows, predict, start)


def fit_torchtitan(rows: Sequence[Row]) -> Constants:
    """What a capped H100 sustains, what float8 gains, what eager norms and activations cost."""

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
    return _least_squares(rows, predict, start)


def fit_deepspeed(rows: Sequence[Row]) -> Constants:
    """Traffic of unfused attention, and the price of misaligned heads and shards."""

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
    return _least_squares(rows, predict, start)


def fit_megatron(rows: Sequence[Row]) -> Constants:
    """How fast matrix products are under tensor parallelism."""

    def predict(row: Row, constants: Constants) -> float:
        speed = constants["MEGATRON.matmul_speed"]
        return training_rate(row, _with_software(gpu_run(row), matmul_speed=speed))

    return _least_squares(rows, predict, {"MEGATRON.matmul_speed": MEGATRON.matmul_speed})


def fit_prefill(rows: Sequence[Row]) -> Constants:
    """Bandwidth of the testbed's links, from prompts."""
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
    return _least_squares(rows, predict, start)


def fit_decode(rows: Sequence[Row]) -> Constants:
    """Latencies of the testbed's links and what it draws from HBM, from decoded tokens."""

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
    return _least_squares(rows, predict, start)


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


def _least_squares(
    rows: Sequence[Row], predict: Callable[[Row, Constants], float], start: Constants
) -> Constants:
    """The constants near ``start`` whose predictions have the least squares of logarithms."""
    names = list(start)

    def constants(logs: np.ndarray) -> Constants:
        return dict(zip(names, np.exp(logs).tolist(), strict=True))

    def errors(logs: np.ndarray) -> np.ndarray:
        known = constants(logs)
        return np.array([np.log(predict(row, known) / float(row.value)) for row in rows])

    logs = np.log(list(start.values()))
    now, damping = errors(logs), 1e-3
    for _ in range(_MOST_STEPS):
        slopes = [(errors(logs + _STEP * unit) - now) / _STEP for unit in np.eye(len(names))]
        jacobian = np.stack(slopes, axis=1)
        normal = jacobian.T @ jacobian + damping * np.eye(len(names))
        move = np.linalg.solve(normal, -jacobian.T @ now)
        moved = errors(logs + move)
        better = moved @ moved < now @ now
        damping *= 0.3 if better else 4
        if better:
            logs, now = logs + move, moved
        if np.abs(move).max() < 1e-9:
            break
    return constants(logs)
