"""Batch norm of a plain loop over micro-batches, as a run normalizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn import functional

from cstorch.referee.draws import row_counts
from waferstream.core.program.micro_batches import Cut


@contextmanager
def norms_of_micro_batches(cut: Cut) -> Iterator[None]:
    """Let each micro-batch be normalized by its own statistics, and update the running ones."""
    whole = functional.batch_norm

    def batch_norm(
        input: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        training: bool = False,
        *options: Any,
        **named: Any,
    ) -> torch.Tensor:
        state = (running_mean, running_var, weight, bias, training, *options)
        counts = row_counts(cut, input.shape[0]) if training else None
        if counts is None or len(counts) == 1:
            return whole(input, *state, **named)
        return torch.cat([whole(part, *state, **named) for part in input.split(counts)])

    with mock.patch.object(functional, "batch_norm", batch_norm):
        yield
