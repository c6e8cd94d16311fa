"""A loader that a program has made itself, such as torch's DataLoader.

Every input worker gets a copy of it. Its random numbers (also for ``shuffle=True``) go on from the
state that the process has when the first loop over it begins, as those of a plain loop do.

Every call of a Trainer's ``fit`` begins as a loop over its loader would: with its first batch, in
the order of a next epoch where the loader shuffles; an iterator goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from appliance.input.batches import process_states, set_process_states
from cstorch.utils.data.dataloader import BATCHES, DataLoader
from waferstream.core.errors import ConfigError

Source = Iterable[Any] | Callable[[], Iterable[Any]]


class GivenLoader(DataLoader):
    """The loader of a program, for executor loops."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._copies = _Copies(loader)
        super().__init__(self._copies)

    @property
    def local(self) -> Any:
        """The loader itself."""
        return self._copies.loader

    def start_at(self, done: int) -> None:
        """Note that a loop begins after so many steps of training; the first one fixes the state
        of the random numbers.
        """
        if self._copies.states is None:
            self._copies.states = process_states()
        super().start_at(done)


class _Copies:
    """An input function that returns the loader: another process gets both by value."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self.states: tuple[Any, ...] | None = None

    def __call__(self) -> Iterable[Any]:
        if self.states is not None:
            set_process_states(self.states)
        return self.loader


def loader_of(given: object, known: MutableMapping[int, Any]) -> DataLoader:
    """Return the loader for an executor: what was given, or a GivenLoader.

    Args:
        given: A cstorch DataLoader, or an iterable of global batches.
        known: The GivenLoaders so far by the identity of what was given; later loops go on.

    Raises:
        ConfigError: Input workers cannot read what was given, or not from its beginning.
    """
    if isinstance(given, DataLoader):
        return given
    if isinstance(given, Iterator):
        raise ConfigError(
            "DataExecutor must get a loader that can be read again",
            code="loader-read-once",
            where="cstorch.utils.data.DataExecutor",
            value=type(given).__name__,
            rule="every input worker reads the data from the beginning",
            remedy="return it from a function: cstorch.utils.data.DataLoader(input_fn)",
        )
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise ConfigError(
            "DataExecutor must get a loader of global batches",
            code="not-a-loader",
            where="cstorch.utils.data.DataExecutor",
            value=type(given).__name__,
            rule="a torch DataLoader, another iterable of batches, or a cstorch DataLoader",
            remedy="return it from a function: cstorch.utils.data.DataLoader(input_fn)",
        )
    loader: GivenLoader = known.setdefault(id(given), GivenLoader(given))
    return loader


def loader_for(given: Source | DataLoader) -> DataLoader:
    """Return a loader for an executor of what a Trainer was given: a loader, or its function."""
    if isinstance(given, DataLoader):
        return given
    return DataLoader(given) if callable(given) else GivenLoader(given)


class FitLoaders:
    """The loader that the last fit has read, and how far."""

    def __init__(self) -> None:
        self._given: Source | None = None
        self._loader: DataLoader | None = None
        self._num_read = 0

    def of(self, given: Source) -> DataLoader:
        """Return the loader for a fit, which begins where it has to."""
        is_first = self._loader is None
        if self._loader is None or given is not self._given:
            self._loader = loader_for(given)
            self._given, self._num_read = given, 0
        self._num_read = _next_begin(self._loader, given, self._num_read)
        if not is_first:
            self._loader.load_state_dict({BATCHES: self._num_read})
        return self._loader

    def note_read(self, num_batches: int) -> None:
        """Note how many batches the fit has read."""
        self._num_read += num_batches


def _next_begin(loader: DataLoader, given: Source, num_read: int) -> int:
    """Return the batch with which the next loop begins, counted over all epochs."""
    if isinstance(given, Iterator) or not num_read:
        return num_read
    try:
        length = len(loader)
    except TypeError:
        return 0
    return -(-num_read // length) * length
