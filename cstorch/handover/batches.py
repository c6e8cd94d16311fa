"""The batch that a program's own loop has read, for the input workers of the cluster.

An input worker in the process of the program takes it from memory; one in another process asks for
it on a connection of this host, with a key that travels with the input function.
"""

from __future__ import annotations

import io
import secrets
import threading
from collections.abc import Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import torch

Batch = Sequence[torch.Tensor]


class HandedBatches:
    """An input function, and the loader that it returns: the newest batch, whatever the step is."""

    def __init__(self) -> None:
        self.newest: Batch = ()
        self._door: _Door | None = None

    def __call__(self) -> HandedBatches:
        return self

    def batch(self, step: int) -> Batch:  # noqa: ARG002  (the cluster runs one step at a time)
        """Return the batch of the step that runs."""
        return self.newest

    def close(self) -> None:
        """Serve no other process any more."""
        if self._door is not None:
            self._door.close()

    def __reduce__(self) -> Any:
        if self._door is None:
            self._door = _Door(self)
        return AskedBatches, (self._door.address, self._door.key)


class AskedBatches:
    """The same in another process, which asks for each batch."""

    def __init__(self, address: Any, key: bytes) -> None:
        self._address, self._key = address, key
        self._connection: Connection | None = None

    def __call__(self) -> AskedBatches:
        return self

    def batch(self, step: int) -> Batch:
        """Return the batch of the step that runs."""
        if self._connection is None:
            self._connection = Client(self._address, authkey=self._key)
        self._connection.send_bytes(str(step).encode())
        batch: Batch = torch.load(io.BytesIO(self._connection.recv_bytes()), weights_only=True)
        return batch

    def __reduce__(self) -> Any:
        return AskedBatches, (self._address, self._key)


class _Door:
    """Answers the input workers of other processes, each on a thread."""

    def __init__(self, batches: HandedBatches) -> None:
        self.key = secrets.token_bytes(32)
        self._batches = batches
        self._listener = Listener(("localhost", 0), authkey=self.key)
        self.address = self._listener.address
        threading.Thread(target=self._accept, daemon=True, name="handed-batches").start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except AuthenticationError:
                continue
            except OSError:  # it was closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection:
            try:
                while connection.recv_bytes():
                    data = io.BytesIO()
                    torch.save(list(self._batches.newest), data)
                    connection.send_bytes(data.getvalue())
            except (EOFError, OSError):
                return
