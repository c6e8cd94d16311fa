"""A plain loop over a whole batch that draws and normalizes as micro-batches of a run do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from waferstream.core.program.micro_batches import Cut
from waferstream.core.rng import stream_key
from waferstream.numerics.keyed_random import KERNELS


class BatchDraws(TorchDispatchMode):
    """Runs each random op of a step by its keyed kernel, on the rows of one micro-batch at a time.

    Rows are the samples of the batch, or the same number of consecutive rows for each sample.

    Args:
        cut: The micro-batches.
        step: The step, counted from 1.
        seed: The seed of the backend.
        batch_draws: The random ops, counted, that draw for all samples.
    """

    def __init__(self, cut: Cut, step: int, seed: int, batch_draws: Collection[int] = ()) -> None:
        TorchDispatchMode.__init__(self)
        self._cut = cut
        self._keys = [stream_key(seed, step, index) for index in range(cut.num_micro_batches)]
        self._batch_draws = batch_draws
        self._position = 0

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, kwargs = op.overloadpacket.__name__, dict(kwargs or {})
        if name == "rrelu_with_noise_":
            out_of_place = torch.ops.aten.rrelu_with_noise.default
            return args[0].copy_(self.__torch_dispatch__(out_of_place, types, args, kwargs))
        kernel = KERNELS.get(name)
        if kernel is None:
            return op(*args, **kwargs)
        kwargs.pop("generator", None)
        self._position += 1
        position = self._position - 1
        pieces = None if position in self._batch_draws else self._pieces(args)
        if pieces is None:
            return kernel(self._keys[0], position, *args, **kwargs)
        results = [
            kernel(key, position, *piece, **kwargs)
            for key, piece in zip(self._keys, pieces, strict=True)
        ]
        return args[0] if name.endswith("_") else _joined(results)

    def _pieces(self, args: Sequence[Any]) -> list[list[Any]] | None:
        """Return the arguments of each micro-batch; None if none has a row for every sample."""
        parts = [_parts(value, self._cut) for value in args]
        if all(part is None for part in parts):
            return None
        return [
            [value if part is None else part[i] for value, part in zip(args, parts, strict=True)]
            for i in range(self._cut.num_micro_batches)
        ]


def row_counts(cut: Cut, rows: int) -> list[int] | None:
    """Return the rows of each micro-batch; None if ``rows`` is no multiple of the samples."""
    each, rest = divmod(rows, cut.batch_size)
    if rest or not each:
        return None
    long = cut.num_micro_batches - cut.num_short
    return [cut.size * each] * long + [(cut.size - 1) * each] * cut.num_short


def _parts(value: Any, cut: Cut) -> list[Any] | None:
    """Return the part of each micro-batch in a tensor, or in a size; None for other arguments."""
    if isinstance(value, torch.Tensor) and value.ndim:
        counts = row_counts(cut, value.shape[0])
        return None if counts is None else list(value.split(counts))
    if isinstance(value, list | tuple) and value and isinstance(value[0], int):
        counts = row_counts(cut, value[0])
        return None if counts is None else [[count, *value[1:]] for count in counts]
    return None


def _joined(results: Sequence[Any]) -> Any:
    """Return results of micro-batches as one of the batch, tensor by tensor."""
    leaves = [pytree.tree_leaves(result) for result in results]
    joined = [torch.cat(each) for each in zip(*leaves, strict=True)]
    return pytree.tree_unflatten(joined, pytree.tree_structure(results[0]))


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
