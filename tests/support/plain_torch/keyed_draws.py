"""Random numbers of a plain PyTorch loop that draws as a run does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from waferstream.core.rng import stream_key
from waferstream.numerics.keyed_random import KERNELS


class KeyedDraws(TorchDispatchMode):
    """Runs every random op by its keyed kernel, as one micro-batch of a step does.

    The random ops at the positions ``batch_draws`` draw once for the batch.
    """

    def __init__(
        self, micro_batch: int, step: int = 1, seed: int = 0, batch_draws: Collection[int] = ()
    ) -> None:
        TorchDispatchMode.__init__(self)
        self._key, self._key_of_batch = (stream_key(seed, step, i) for i in (micro_batch, 0))
        self._batch_draws = batch_draws
        self._position = 0

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = op.overloadpacket.__name__
        if name == "rrelu_with_noise_":
            out_of_place = torch.ops.aten.rrelu_with_noise.default
            return args[0].copy_(self.__torch_dispatch__(out_of_place, types, args, kwargs))
        kernel = KERNELS.get(name)
        if kernel is None:
            return op(*args, **(kwargs or {}))
        key = self._key_of_batch if self._position in self._batch_draws else self._key
        self._position += 1
        options = {name: given for name, given in (kwargs or {}).items() if name != "generator"}
        return kernel(key, self._position - 1, *args, **options)
