"""What is trained: a dense decoder, and how much arithmetic it is."""

from __future__ import annotations

from dataclasses import dataclass

from timing.least import check_least
from wsc.core.errors import ConfigError


@dataclass(frozen=True)
class Workload:
    """A dense decoder and the sequences that it is trained on.

    Raises ConfigError if a number is too small or the parameters do not hold the embeddings.
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
    """Whether every position has a learned vector, which takes no arithmetic."""
    feed_forward: int = 0
    """Width of the feed-forward block; 0: four times ``hidden``."""
    parallel_blocks: bool = False
    """Whether attention and feed-forward block run beside each other, so that one sum joins both
    (Wang and Komatsuzaki, 2021: GPT-J)."""

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
        check_least("a workload", 0, feed_forward=self.feed_forward)
        if self.layer_parameters <= 0:
            raise ConfigError(
                "the parameters do not even hold the embeddings",
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
        """Weights of each matrix of a layer: Q, K and V together, output, feed-forward up, down."""
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
