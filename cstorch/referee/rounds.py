"""How a run rounds and draws, as far as a plain loop must do so, too."""

from __future__ import annotations

from dataclasses import dataclass

from cstorch.amp import stream_precision
from cstorch.referee.draws import BatchDraws
from cstorch.session.session import Session
from waferstream.core.errors import ConfigError
from waferstream.core.program.micro_batches import Cut
from waferstream.numerics.precision import StreamPrecision


@dataclass(frozen=True)
class Rounds:
    """Precision, micro-batches and seed of a run; the random ops that draw for all samples."""

    precision: StreamPrecision
    cut: Cut
    seed: int
    batch_draws: tuple[int, ...] = ()

    def draws(self, step: int) -> BatchDraws:
        """Return the draws of a step, for the whole batch."""
        return BatchDraws(self.cut, step, self.seed, self.batch_draws)


def rounds_of(session: Session) -> Rounds:
    """Return how the steps of a backend round and draw.

    Raises:
        ConfigError: It has no cluster.
    """
    if session.execution.training is None:
        raise ConfigError(
            "a check compares a cluster with plain PyTorch",
            code="check-not-csx",
            value=session.settings.backend_type.name,
            rule="on CPU and GPU steps are plain PyTorch already",
            remedy="train on CSX",
        )
    program = session.execution.training.program
    precision = stream_precision(session.model.module)
    return Rounds(precision, program.cut, session.seed, program.batch_draws)
