"""How a run rounds and draws, as far as a plain loop must do so, too; and rounding at random.

In Monte Carlo arithmetic (Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point
arithmetic", UCLA CSD-970002, 1997) every op rounds up or down at random. The spread of a few such
runs is the rounding error of the program: it needs no tolerance, and it knows the type of each
value, cancellation, and how badly a model is conditioned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from cstorch.amp import stream_precision
from cstorch.referee.draws import BatchDraws
from cstorch.session.session import Session
from waferstream.core.errors import ConfigError
from waferstream.core.program.micro_batches import Cut
from waferstream.numerics.precision import StreamPrecision

_EXACT = """
    _to_copy abs amax amin bernoulli cat ceil clamp clamp_max clamp_min clone constant_pad_nd copy
    embedding empty_like expand_copy flip floor fmod full_like gather index index_select
    masked_fill max max_pool2d_with_indices maximum min minimum native_dropout neg new_empty
    new_full new_ones new_zeros ones_like rand_like randn_like relu repeat roll round scatter
    select_scatter sign slice_backward slice_scatter sort stack threshold_backward topk tril triu
    trunc where zeros_like
"""
"""Ops whose float results are elements of their operands, or constants: they round nothing."""


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


class RandomRounding(TorchDispatchMode):
    """Moves each computed float by up to one unit in its last place, at random.

    Args:
        seed: Seed of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        TorchDispatchMode.__init__(self)
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        results = op(*args, **(kwargs or {}))
        if not _rounds(op):
            return results
        return pytree.tree_map_only(torch.Tensor, self._moved, results)

    def _moved(self, value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        step = torch.rand(value.shape, generator=self._generator).mul_(2).sub_(1)
        step.mul_(torch.finfo(value.dtype).eps)
        moved = value + value * step.to(value.dtype)
        # Whole numbers are exact: counts, masks, the least number of a type for what is masked.
        return value.copy_(torch.where(value == value.round(), value, moved))


@cache
def _rounds(op: Any) -> bool:
    """Return whether an op computes new floats from others."""
    schema = op._schema
    has_operand = any(isinstance(a.type, torch.TensorType) for a in schema.arguments)
    makes_new = all(result.alias_info is None for result in schema.returns)
    return has_operand and makes_new and op.overloadpacket.__name__ not in _EXACT.split()
