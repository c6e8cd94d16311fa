"""The ramps between routers and cores: who listens to which colour, and what goes up and down."""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.simulator.network import Network
from csnode.fabric.simulator.queues import Queues
from csnode.fabric.simulator.threads import Threads
from wsc.core.errors import ApplianceCompilationError


class Ramps:
    """The queues in front of the cores, each with at most one thread that listens to it.

    Wavelets ``sent`` and ``received`` by cores are counted.
    """

    def __init__(
        self, queues: Queues, network: Network, threads: Threads, ramp_cycles: int
    ) -> None:
        self.sent = 0
        self.received = 0
        self._queues, self._network, self._threads = queues, network, threads
        self._ramp_cycles = ramp_cycles
        self._listener = np.full(queues.pe.size - queues.num_router, -1, dtype=np.int64)

    def listen(self, threads: Array, colours: Array) -> None:
        """Give threads what arrives on a colour each, until ``leave``."""
        ears = self._queues.ramp_down[colours, self._threads.pe[threads]] - self._queues.num_router
        taken = self._listener[ears] >= 0
        if taken.any() or np.unique(ears).size < ears.size:
            raise ApplianceCompilationError(
                "two threads of a PE receive one colour at the same time",
                where=self._threads.describe(int(threads[taken.argmax()])),
                rule="one thread receives a colour; let the other one wait for a signal",
            )
        self._listener[ears] = threads

    def leave(self, queues: Array) -> None:
        """Listen no more."""
        self._listener[queues - self._queues.num_router] = -1

    def arrivals(self, now: int) -> tuple[Array, Array]:
        """Queues whose first wavelet is there and listened to, and the threads that do."""
        queues = self._network.arrivals(now)
        listeners = self._listener[queues - self._queues.num_router]
        heard = listeners >= 0
        return queues[heard], listeners[heard]

    def receive(self, queues: Array) -> tuple[Array, Array]:
        """Take in the first wavelet of each queue: values and flags."""
        self.received += queues.size
        return self._network.wavelets.pop(queues)

    def upward(self, threads: Array, colours: Array) -> Array:
        """The queue into which each thread sends on its colour; -1 for colour -1."""
        ramps = self._queues.ramp_up[colours, self._threads.pe[threads]]
        return np.where(colours >= 0, ramps, -1)

    def have_room(self, ramps: Array) -> Array:
        """Whether one more wavelet fits; none always does."""
        return self._network.wavelets.has_room(ramps)

    def send(self, ramps: Array, values: Array, flags: Array, now: int) -> None:
        """One wavelet each, worked on in this cycle."""
        self._network.inject(ramps, values, flags, now + 1 + self._ramp_cycles)
        self.sent += ramps.size
