"""How a training step is spread over GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from timing.least import check_least
from wsc.core.errors import ConfigError

Sharding = Literal["ddp", "zero1", "zero2", "zero3"]
"""What data-parallel ranks divide among themselves: nothing; optimizer state; also gradients (FSDP
calls it SHARD_GRAD_OP); also weights (FULL_SHARD)."""

Recompute = Literal["none", "selective", "full"]
"""What the backward pass computes again: nothing; every other matrix product and all cheap ops; a
whole layer from its input (activation checkpointing)."""


@dataclass(frozen=True)
class Parallelism:
    """Degrees of parallelism and the micro-batches of a step.

    ``micro_batch`` counts sequences per data-parallel rank, ``micro_batches`` how many of them make
    a step: gradient accumulation, and what a pipeline is filled with.
    Raises ConfigError if a degree or a size is not positive, or a number of threads negative.
    """

    sharding: Sharding = "zero3"
    tensor: int = 1
    pipeline: int = 1
    micro_batch: int = 1
    micro_batches: int = 1
    virtual_stages: int = 1
    """Parts of the model that each pipeline stage holds in turn (interleaved 1F1B)."""
    recompute: Recompute = "none"
    float8: bool = False
    overlap_tensor: bool = False
    """Whether tensor-parallel communication runs beside the matrix products (asynchronous TP)."""
    optimizer_threads: int = 0
    """CPU threads of a rank that step the optimizer, whose state then lies in the memory of the
    host (Ren et al., 2021); 0: the GPU does."""

    def __post_init__(self) -> None:
        check_least(
            "a parallelism",
            tensor=self.tensor,
            pipeline=self.pipeline,
            micro_batch=self.micro_batch,
            micro_batches=self.micro_batches,
            virtual_stages=self.virtual_stages,
        )
        check_least("a parallelism", 0, optimizer_threads=self.optimizer_threads)

    @property
    def model_parallel(self) -> int:
        """GPUs that hold one copy of the model."""
        return self.tensor * self.pipeline

    def data_parallel(self, gpus: int) -> int:
        """Copies of the model on ``gpus``; ConfigError if they do not come out even."""
        ranks, rest = divmod(gpus, self.model_parallel)
        if ranks == 0 or rest:
            raise ConfigError(
                "the GPUs are no multiple of those that one copy of the model takes",
                where="gpus",
                value=gpus,
                rule=f"a multiple of tensor x pipeline = {self.model_parallel}",
            )
        return ranks

    def samples_per_step(self, gpus: int) -> int:
        """Sequences of one step: the global batch."""
        return self.data_parallel(gpus) * self.micro_batch * self.micro_batches
