"""State of a user's own loader in a checkpoint: the vendor's protocol of restartable loaders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from waferstream.core.errors import ConfigError


@runtime_checkable
class RestartableDataLoader(Protocol):
    """A loader with a state of its own, which each reader of data has a part of."""

    def state_dict(self) -> Any:
        """Return the state of one reader; ``get_worker_state`` says how far it has read."""

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:
        """Take the state of one reader."""

    def aggregate_state_dict(self, worker_states: Sequence[Any]) -> dict[str, Any]:
        """Return the state of the loader from those of its readers."""

    def deaggregate_state_dict(self, aggregated_state_dict: Any, strict: bool = True) -> Any:
        """Return the state of one reader from that of the loader."""


@dataclass(frozen=True)
class DataLoaderCheckpoint:
    """How far a reader of data has read. There is one here, which reads whole global batches."""

    appliance_step: int
    samples_streamed: int
    global_worker_id: int = 0
    local_worker_id: int = 0
    total_num_workers: int = 1
    num_workers_per_csx: int = 1
    num_csx: int = 1
    wse_id: int = 0
    user_state_dict: Mapping[str, Any] | None = None

    @property
    def worker_step(self) -> int:
        """The global batches that the reader has read."""
        return self.appliance_step


_worker_state: ContextVar[DataLoaderCheckpoint] = ContextVar("worker_state")


def get_worker_state() -> DataLoaderCheckpoint:
    """Return how far the data has been read, inside a loader's ``state_dict``.

    Raises:
        ConfigError: No state of a loader is being made.
    """
    state = _worker_state.get(None)
    if state is None:
        raise ConfigError(
            "the state of an input worker was asked for outside of a loader's state_dict",
            code="worker-state-outside-state-dict",
            where="cstorch.distributed.get_worker_state",
            rule="it exists while cstorch.utils.data.DataLoader makes its state",
            remedy="call it in the state_dict method of the loader that input_fn returns",
        )
    return state


def own_state(loader: object, step: int, samples: int) -> dict[str, Any]:
    """Return the state that a restartable loader adds to a checkpoint; empty for others."""
    if not isinstance(loader, RestartableDataLoader):
        return {}
    with _reading(DataLoaderCheckpoint(step, samples)):
        return dict(loader.aggregate_state_dict([loader.state_dict()]))


@contextmanager
def _reading(state: DataLoaderCheckpoint) -> Iterator[None]:
    token = _worker_state.set(state)
    try:
        yield
    finally:
        _worker_state.reset(token)
