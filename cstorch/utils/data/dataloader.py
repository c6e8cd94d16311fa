"""DataLoader: a loader that is built on the input workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import torch

from appliance.input.batches import GlobalBatches
from cstorch.current import call_on_worker, existing_session
from cstorch.utils.data.restartable import own_state
from waferstream.core.errors import DataError
from waferstream.core.program.program import Loading

BATCHES, SAMPLES = "batches", "samples_streamed"
"""Keys of a loader's state: global batches that training has read, and their samples."""
_numbers = itertools.count()


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
        self._call = partial(call_on_worker, input_fn, *args, **kwargs)
        self.source: Callable[[], Any] = self._call
        self.seed = torch.initial_seed()
        self._offset: int | None = None
        self._loaded: int | None = None  # batches read when the next loop begins
        self.id = next(_numbers)
        """Number of the loader among those of this process; a copy has the same."""

    @property
    def offset(self) -> int:
        """Global batches that the loader is ahead of the steps of training.

        A loader without a state begins with the first step of this program.
        """
        if self._offset is not None:
            return self._offset
        session = existing_session()
        return 0 if session is None else -session.steps.resumed

    @cached_property
    def _batches(self) -> GlobalBatches:
        return GlobalBatches(self.source, seed=self.seed)

    @property
    def local(self) -> Any:
        """The loader of the user's process."""
        return self._batches.source

    @property
    def is_restartable(self) -> bool:
        """Whether the loader goes on from a saved state: every loader does."""
        return True

    @property
    def dataloader(self) -> Any:
        """The loader of the user's process, under the vendor's name."""
        return self.local

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

    def state_dict(self) -> dict[str, Any]:
        """Return how far training has read the loader: the same for any number of workers.

        The state of a RestartableDataLoader of the user's is part of it, for other readers of the
        checkpoint: reading on needs none, since every batch before is read again.
        """
        session = existing_session()
        if session is not None:
            session.settle()
        done = 0 if session is None else session.global_step
        batches = done + self.offset if self._loaded is None else self._loaded
        samples = batches * self._rows
        return {**own_state(self.local, batches, samples), BATCHES: batches, SAMPLES: samples}

    @property
    def _rows(self) -> int:
        """Samples of a global batch."""
        return self.first[1][0].shape[0] if self.first[1] else 1

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Let the next loop of training go on where another one ended.

        A loader without a state goes on with the steps of training. The number of samples counts,
        so that the size of a batch may change. A source with a ``batch`` method starts there at
        once; any other is read up to the batch.

        Args:
            state_dict: The state of a loader over the same data.
            strict: Refuse a state of another kind, instead of leaving this one as it is.

        Raises:
            DataError: ``strict`` is set, and the state does not say how far its loader was read; or
                it ends inside a batch of this loader.
        """
        batches, samples = state_dict.get(BATCHES), state_dict.get(SAMPLES)
        if isinstance(samples, int) and samples >= 0:
            batches = self._batches_in(samples)
        if isinstance(batches, int) and batches >= 0:
            self._loaded = batches
            self.source = partial(self._call)  # another object: the step is installed again
        elif strict:
            raise DataError(
                "the state of a loader must say how many global batches were read",
                code="loader-state-unknown",
                where="cstorch.utils.data.DataLoader",
                value=state_dict,
                rule=f"{{'{BATCHES}' or '{SAMPLES}': a number of at least 0}}",
                remedy="load what DataLoader.state_dict() has returned, or pass strict=False",
            )

    def _batches_in(self, samples: int) -> int:
        """Return the global batches that have so many samples."""
        batches, rest = divmod(samples, self._rows)
        if rest:
            raise DataError(
                "the state of a loader must end with a global batch",
                code="loader-state-inside-batch",
                where="cstorch.utils.data.DataLoader",
                value=f"{samples} samples in batches of {self._rows}",
                remedy="choose a batch size that divides the samples, or leave the state out",
            )
        return batches

    def start_at(self, done: int) -> None:
        """Note that a loop begins after so many steps of training."""
        if self._loaded is not None:
            self._offset, self._loaded = self._loaded - done, None

    def __len__(self) -> int:
        """Return the global batches of an epoch; TypeError if the loader has no length."""
        return len(self.local)
