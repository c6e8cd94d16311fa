"""Ablations of GPU clusters: constants of software stacks, each set to no effect."""

from __future__ import annotations

from collections.abc import Callable

from validation.ablations.ablation import Ablation
from validation.fit.calibration import Constants
from validation.fit.gpu import TRAINING, predict_training
from validation.rows.row import Row


def _with(**changed: float) -> Callable[[Row], float]:
    constants: Constants = TRAINING | {name.replace("__", "."): v for name, v in changed.items()}
    return lambda row: predict_training(row, constants)


ABLATIONS: tuple[Ablation, ...] = (
    Ablation(
        "traffic of unfused attention",
        "scores cost no traffic beyond fp32",
        "GPU training DeepSpeed",
        _with(DEEPSPEED__score_bytes=0.0),
    ),
    Ablation(
        "traffic of eager kernels",
        "norms are free",
        "GPU training TorchTitan",
        _with(TORCHTITAN_EAGER__hidden_passes=1.0),
    ),
    Ablation(
        "casts of float8",
        "8-bit products reach the share of 16-bit ones",
        "GPU training",
        _with(FSDP__float8_share=1.0),
    ),
    Ablation(
        "kernels of tensor parallelism",
        "Megatron's products are as fast as FSDP's",
        "GPU training Megatron",
        _with(MEGATRON__matmul_speed=1.0),
    ),
)
