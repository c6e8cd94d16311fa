"""A process that answers what the next move of a slider may ask, so that a question finds it.

It is a fork of the server's, so it knows what that has captured, and yields to it. Each answer goes
to the server with the steps that were captured for it: a server that captures nothing is never
seconds away from its next question.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Condition, Thread

from waferstream.explorer.explorer import Explorer
from waferstream.explorer.settings import Settings

_NICENESS = 10

_WAIT_S = 120.0
"""The longest that an answer is waited for: then the server captures the step itself."""


class Ahead:
    """Lets an explorer learn what another process has answered."""

    def __init__(self, explorer: Explorer, begin: Callable[[], None]) -> None:
        """Fork the process, which calls ``begin`` first and answers what is next to rest."""
        self._explorer = explorer
        self._changed = Condition()
        self._tried: set[object] = set()
        self._is_alive = True
        fork = multiprocessing.get_context("fork")
        self._connection, there = fork.Pipe()

        def work() -> None:
            self._connection.close()  # so that the end of the server ends this process
            begin()
            _work(explorer, there)

        self._process = fork.Process(target=work, name="answers ahead", daemon=True)
        self._process.start()
        there.close()
        self._learning = Thread(target=self._learn, name="learns answers")
        self._learning.start()

    def move_to(self, settings: Settings) -> None:
        """Let the process go on from other settings; wait for its answer if a step is captured.

        Raises:
            ConfigError: There is no such knob, or a value is not allowed.
        """
        items, is_captured = self._explorer.items(settings), self._explorer.is_captured(settings)
        with suppress(OSError):  # the process has ended: the server captures
            self._connection.send((settings, not is_captured))
        if not is_captured:
            with self._changed:
                self._changed.wait_for(
                    lambda: items in self._tried or not self._is_alive, timeout=_WAIT_S
                )

    def _learn(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                learned = self._connection.recv()
                self._explorer.learn(learned)
                gc.freeze()  # looking through captured steps takes tenths of a second
                with self._changed:
                    self._tried.add(learned.items)
                    self._changed.notify_all()
        with self._changed:
            self._is_alive = False
            self._changed.notify_all()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._learning.join()
        self._connection.close()


def _work(explorer: Explorer, server: Connection) -> None:
    """Answer until the server ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the server ends both
    os.nice(_NICENESS)
    with suppress(EOFError, OSError):
        for settings in _questions(explorer, server):
            server.send(explorer.lesson(settings))


def _questions(explorer: Explorer, server: Connection) -> Iterator[Settings]:
    """Yield what is asked, and else what is next to the newest settings, each once."""
    moves, tried = [explorer.moves_from({})], {explorer.items({})}
    while True:
        while server.poll() or not moves:
            settings, is_asked = server.recv()
            moves.append(explorer.moves_from(settings))
            if is_asked:
                moves.append(iter([settings]))
        found = next(moves[-1], None)
        if found is None:
            moves.pop()
        elif (items := explorer.items(found)) not in tried:
            tried.add(items)
            yield found
