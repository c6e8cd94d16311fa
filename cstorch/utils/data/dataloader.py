"""DataLoader: a loader that is built on the input workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch

from appliance.batches import GlobalBatches
from cstorch.current import call_on_worker
from wsc.core.errors import DataError
from wsc.core.loading import Loading


class DataLoader:
    """The loader that ``input_fn(*args, **kwargs)`` returns: any iterable of global batches.

    The function runs once on every input worker, and once in the user's process, which reads the
    first batch only. All of them draw the same random numbers (also for ``shuffle=True``): those of
    a plain loop after ``torch.manual_seed`` with the seed that torch has when this object is made.
    """

    def __init__(self, input_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if not callable(input_fn):
            raise DataError(
                "input_fn must be a function that makes a loader",
                code="input-fn-not-callable",
                value=input_fn,
            )
        self.source: Callable[[], Any] = partial(call_on_worker, input_fn, *args, **kwargs)
        self.seed = torch.initial_seed()

    @cached_property
    def _batches(self) -> GlobalBatches:
        return GlobalBatches(self.source, seed=self.seed)

    @property
    def local(self) -> Any:
        """The loader of the user's process."""
        return self._batches.source

    @cached_property
    def first(self) -> tuple[Any, list[torch.Tensor]]:
        """The first global batch, and its tensors in pytree order; DataError if there is none."""
        return self._batches.first()

    def batch(self, index: int) -> tuple[Any, list[torch.Tensor]]:
        """Return the global batch of a step, counted from 0, and its tensors in pytree order."""
        return self._batches.structured(index)

    @property
    def loading(self) -> Loading:
        """The loader on the emulated machine.

        A loader may state it in an attribute ``loading``; otherwise it is that of a torch
        DataLoader with as many processes, or unknown.
        """
        stated: Loading | None = getattr(self.local, "loading", None)
        return stated or Loading(num_workers=getattr(self.local, "num_workers", 0))

    def __len__(self) -> int:
        """Return the global batches of an epoch; TypeError if the loader has no length."""
        return len(self.local)
