"""The workload of a GPU cluster: a dense decoder, and how its training step is parallelized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from waferstream.core.arguments import check_least
from waferstream.core.errors import ConfigError


@dataclass(frozen=True)
class Workload:
    """A dense decoder and the sequences that it is trained on.

    Raises:
        ConfigError: A number is too small, or fewer parameters than the embeddings have.
    """

    parameters: int
    hidden: int
    layers: int
    heads: int
    seq_len: int
    vocab: int
    tied_embeddings: bool = False
    """Whether input and output share one embedding."""
    learned_positions: bool = False
    """Whether every position has a learned vector, which costs no arithmetic."""
    feed_forward: int = 0
    """Width of the feed-forward block; 0: four times ``hidden``."""
    parallel_blocks: bool = False
    """Whether attention and feed-forward block read the same input, so that one sum joins both
    (Wang and Komatsuzaki, 2021: GPT-J)."""
    layer_ops: int = 0
    """Ops of a layer, forward and backward, without views; 0 where they are not known."""

    def __post_init__(self) -> None:
        check_least(
            "a workload",
            parameters=self.parameters,
            hidden=self.hidden,
            layers=self.layers,
            heads=self.heads,
            seq_len=self.seq_len,
            vocab=self.vocab,
        )
        check_least("a workload", 0, feed_forward=self.feed_forward, layer_ops=self.layer_ops)
        if self.layer_parameters <= 0:
            raise ConfigError(
                "the parameters must include those of the embeddings",
                code="fewer-parameters-than-embeddings",
                where="parameters",
                value=self.parameters,
                rule=f"more than {self._embedding_parameters}",
            )

    @property
    def head_parameters(self) -> int:
        """Weights of the output projection."""
        return self.vocab * self.hidden

    @property
    def layer_parameters(self) -> float:
        """Weights of one layer."""
        return (self.parameters - self._embedding_parameters) / self.layers

    @property
    def matrices(self) -> tuple[int, ...]:
        """Weights of each matrix of a layer: QKV, output, feed-forward up, feed-forward down."""
        wide = self.hidden * (self.feed_forward or 4 * self.hidden)
        return 3 * self.hidden**2, self.hidden**2, wide, wide

    @property
    def head_size(self) -> int:
        """Elements of one attention head, rounded down."""
        return self.hidden // self.heads

    @property
    def scores_per_sequence(self) -> int:
        """Entries of all attention matrices, masked ones included."""
        return self.layers * self.heads * self.seq_len**2

    @property
    def model_flops_per_token(self) -> float:
        """``6 N + 12 L H S``, by convention: no recomputation, no credit for masked scores."""
        return 6 * self.parameters + 12 * self.layers * self.hidden * self.seq_len

    @property
    def _embedding_parameters(self) -> int:
        embeddings = self.head_parameters * (1 if self.tied_embeddings else 2)
        return embeddings + (self.hidden * self.seq_len if self.learned_positions else 0)


Sharding = Literal["ddp", "zero1", "zero2", "zero3"]
"""Data that data-parallel ranks shard: none; optimizer state; also gradients (SHARD_GRAD_OP of
FSDP); also weights (FULL_SHARD)."""

Recompute = Literal["none", "selective", "needed", "full"]
"""Work that the backward pass repeats: none; every other matrix product and all cheap ops; a layer
from its input up to the last value that is needed, so without its last product, a third of all
(activation checkpointing of PyTorch since 2.1); a whole layer."""


@dataclass(frozen=True)
class Parallelism:
    """Degrees of parallelism and the micro-batches of a step.

    Raises:
        ConfigError: A degree or size is not positive, or a number of threads is negative.
    """

    sharding: Sharding = "zero3"
    tensor: int = 1
    pipeline: int = 1
    micro_batch: int = 1
    """Sequences of one micro-batch of a data-parallel rank."""
    micro_batches: int = 1
    """Micro-batches of one step: gradient accumulation, or the filling of a pipeline."""
    virtual_stages: int = 1
    """Parts of the model that each pipeline stage holds (interleaved 1F1B)."""
    context: int = 1
    """Parts of every sequence on GPUs of their own; what attention exchanges is hidden."""
    recompute: Recompute = "none"
    float8: bool = False
    overlap_tensor: bool = False
    """Whether tensor-parallel communication overlaps the matrix products (asynchronous TP)."""
    optimizer_threads: int = 0
    """CPU threads of a rank that run the optimizer, whose state is then in host memory (Ren et al.,
    2021); 0: the GPU runs it."""

    def __post_init__(self) -> None:
        check_least(
            "a parallelism",
            tensor=self.tensor,
            pipeline=self.pipeline,
            context=self.context,
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
        """Return the copies of the model on ``gpus``; ConfigError unless the number is whole."""
        of_one = self.model_parallel * self.context
        ranks, rest = divmod(gpus, of_one)
        if ranks == 0 or rest:
            raise ConfigError(
                "the number of GPUs must be a multiple of those of one copy of the model",
                code="gpus-not-divisible",
                where="gpus",
                value=gpus,
                rule=f"a multiple of tensor x pipeline x context = {of_one}",
            )
        return ranks

    def shards(self, gpus: int) -> int:
        """Return the GPUs that hold the same parameters, and among which ZeRO shards them."""
        return self.data_parallel(gpus) * self.context

    def samples_per_step(self, gpus: int) -> int:
        """Return the sequences of one step: the global batch."""
        return self.data_parallel(gpus) * self.micro_batch * self.micro_batches
