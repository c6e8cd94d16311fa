"""Bytes that training keeps on one GPU, compared with its memory.

Mixed precision with Adam: 16-bit weights and gradients, 12 bytes of fp32 master weight and moments
per parameter (Rajbhandari et al., 2020). Activations after Korthikanti et al., 2022: 34 bytes per
token, layer and hidden element, plus the attention scores kept for the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.baselines.gpu.communication import WEIGHT_BYTES
from waferstream.baselines.gpu.hardware import GpuSpec
from waferstream.baselines.gpu.software import SoftwareSpec
from waferstream.baselines.gpu.workload import Parallelism, Workload

STATE_BYTES = 12
"""Bytes of optimizer state per parameter: fp32 master weight and both moments of Adam."""

LAYER_BYTES = 34
"""Bytes kept by a layer per token and hidden element, without scores; Korthikanti et al., 2022."""

LOGIT_BYTES = 6
"""Bytes per token and vocabulary entry: logits in 16 bit and in fp32."""


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on the GPU that holds the most."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float

    @property
    def total_bytes(self) -> float:
        """Sum of all parts."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
        )

    def fits(self, gpu: GpuSpec) -> bool:
        """Return whether the total fits the usable part of the GPU's memory."""
        return self.total_bytes <= gpu.hbm_bytes * gpu.usable_share


def training_memory(
    workload: Workload, parallelism: Parallelism, gpus: int, software: SoftwareSpec
) -> GpuMemory:
    """Return the bytes on one of ``gpus``; ConfigError if the degrees do not divide them."""
    ranks = parallelism.data_parallel(gpus)
    parameters = workload.parameters / parallelism.model_parallel
    at_stage = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}[parallelism.sharding]
    weights = parameters * WEIGHT_BYTES
    states = 0.0 if parallelism.optimizer_threads else parameters * STATE_BYTES
    if at_stage == 3:
        # The own shard, and two gathered layers: one in use, one arriving.
        weights = weights / ranks + 2 * WEIGHT_BYTES * workload.layer_parameters
    return GpuMemory(
        weights_bytes=weights,
        gradients_bytes=parameters * software.gradient_bytes / (ranks if at_stage >= 2 else 1),
        optimizer_bytes=states / (ranks if at_stage >= 1 else 1),
        activations_bytes=_activations(workload, parallelism, software),
    )


def _activations(workload: Workload, parallelism: Parallelism, software: SoftwareSpec) -> float:
    """Return the activation bytes of the first stage, which holds most micro-batches (1F1B)."""
    tokens = parallelism.micro_batch * workload.seq_len
    in_flight = min(parallelism.micro_batches, parallelism.pipeline)
    scores = software.stored_score_bytes * workload.heads * workload.seq_len
    layer = (LAYER_BYTES * workload.hidden + scores) * tokens
    boundary = WEIGHT_BYTES * workload.hidden * tokens
    layers = workload.layers / parallelism.pipeline * in_flight
    kept = {
        "none": layers * layer,
        "selective": layers * layer / 2,
        "full": layers * boundary + layer,
    }[parallelism.recompute]
    return (kept + LOGIT_BYTES * workload.vocab * tokens) / parallelism.tensor
