"""A loader that is built where it runs: on the input workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch

from appliance.batches import GlobalBatches
from wsc.core.errors import DataError
from wsc.core.loading import Loading


class DataLoader:
    """``input_fn(*args, **kwargs)`` returns a torch DataLoader or any iterable of global batches.

    It is run once on every input worker, and once here for the first batch, which is all that the
    user's process sees.
    """

    def __init__(self, input_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if not callable(input_fn):
            raise DataError(
                "input_fn must be a function that makes a loader",
                code="input-fn-not-callable",
                value=input_fn,
            )
        self.source: Callable[[], Any] = partial(input_fn, *args, **kwargs)

    @cached_property
    def local(self) -> Any:
        """The loader as it is on the user's side."""
        return self.source()

    @cached_property
    def first(self) -> tuple[Any, list[torch.Tensor]]:
        """The first global batch, and its tensors in pytree order; DataError if there is none."""
        return GlobalBatches(lambda: self.local).first()

    @property
    def loading(self) -> Loading:
        """Who loads on the emulated machine.

        A loader may say so itself; of a torch DataLoader it is known how many processes it has.
        """
        said: Loading | None = getattr(self.local, "loading", None)
        return said or Loading(num_workers=getattr(self.local, "num_workers", 0))

    def __len__(self) -> int:
        """Global batches in an epoch; TypeError if the loader does not know."""
        return len(self.local)
