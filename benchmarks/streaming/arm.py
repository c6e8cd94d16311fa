"""An arm as the measurement sees it: processes that train when told, and say how long it took.

All arms are alive at the same time but one computes; the others wait in a blocking read.
A process ends when its arm is closed, or when the parent is gone.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import NoReturn

from wsc.core.errors import WaferStreamError

Opener = Callable[[], AbstractContextManager[Callable[[int], object]]]
"""Sets one process of an arm up, and gives a function that trains a number of steps; picklable."""

_WARM_UP_STEPS = 1
_INTERRUPT = {signal.SIGINT}
_END_S = 30.0  # a cluster ends within seconds; one operation of a large model may take longer


@dataclass(frozen=True)
class _Failure:
    """What a process says instead of seconds."""

    traceback: str


class Arm:
    """One way to train. The constructor returns when it has done its warm-up.

    Use ``close`` in a ``finally``. Raises WaferStreamError when a process fails or dies.
    """

    def __init__(self, name: str, openers: Sequence[Opener]) -> None:
        self.name = name
        self._processes: dict[Connection, SpawnProcess] = {}
        spawn = get_context("spawn")
        try:
            for opener in openers:
                ours, theirs = spawn.Pipe()
                process = spawn.Process(target=_serve, args=(theirs, opener), name=name)
                signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)  # inherited
                process.start()
                self._processes[ours] = process
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
                theirs.close()  # so that its end is the end of the pipe
            self._answers()
        except BaseException:
            self.close()
            raise

    def run(self, steps: int) -> float:
        """Train ``steps`` steps; the seconds that the slowest process measured around them."""
        for pipe in self._processes:
            pipe.send(steps)
        return max(self._answers())

    def close(self) -> None:
        """End the arm's processes, whatever they are doing. Idempotent."""
        for process in self._processes.values():
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGINT)  # to SIGTERM Ray adds a dump of its stack
        for pipe in self._processes:
            pipe.close()  # wakes who reads it
        deadline = time.monotonic() + _END_S
        for process in self._processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
        self._processes.clear()

    def _answers(self) -> list[float]:
        """One answer of each process, in any order: one that fails may leave others waiting."""
        answers: list[float] = []
        waiting = set(self._processes)
        while waiting:
            for pipe in wait(waiting):
                assert isinstance(pipe, Connection)
                answers.append(self._answer(pipe))
                waiting.remove(pipe)
        return answers

    def _answer(self, pipe: Connection) -> float:
        try:
            answer: float | _Failure = pipe.recv()
        except EOFError as error:
            process = self._processes[pipe]
            process.join()
            raise WaferStreamError(
                "an arm died", where=self.name, value=f"exit code {process.exitcode}"
            ) from error
        if isinstance(answer, _Failure):
            raise WaferStreamError("an arm failed", where=self.name, value=answer.traceback)
        return answer


def _serve(pipe: Connection, opener: Opener) -> None:
    """The life of a process: set up, warm up, obey until the pipe ends."""
    signal.signal(signal.SIGINT, _leave)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)  # from here on it is handled
        with opener() as run:
            pipe.send(_seconds(run, _WARM_UP_STEPS))
            while True:
                pipe.send(_seconds(run, _next(pipe)))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # nobody listens any more
    except Exception:
        with suppress(BrokenPipeError):
            pipe.send(_Failure(traceback.format_exc()))


def _seconds(run: Callable[[int], object], steps: int) -> float:
    start_s = time.perf_counter()
    run(steps)
    return time.perf_counter() - start_s


def _next(pipe: Connection) -> int:
    """Wait for a command; once there will be none, let nothing interrupt the unwinding."""
    try:
        steps: int = pipe.recv()
    except EOFError:
        _leave_in_peace()
        raise
    return steps


def _leave(*_: object) -> NoReturn:
    """Unwind in the middle of whatever it is."""
    _leave_in_peace()
    raise KeyboardInterrupt


def _leave_in_peace() -> None:
    """Let nothing interrupt the unwinding: Ctrl-C reaches us from terminal and parent."""
    signal.signal(signal.SIGINT, lambda *_: None)
