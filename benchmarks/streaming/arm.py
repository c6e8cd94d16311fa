"""Run an arm in processes of its own, which train on request and return the seconds.

All arms are alive at the same time, but only one computes: the processes of the others, with all
that they have started, are stopped until their next trial. A process ends when its arm is closed,
or when the parent ends.

A stopped process cannot notice that its parent has ended. So a keeper, a process that does nothing
else, continues all that is stopped as soon as the process that stopped it ends, in whatever way.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NoReturn

from waferstream.core.errors import WaferStreamError

Opener = Callable[[], AbstractContextManager[Callable[[int], object]]]
"""Set up one process of an arm; yields a function that trains a number of steps. Picklable."""

UNCOUNTED_STEPS = 1
"""Steps at the beginning of each run that do not count."""

_INTERRUPT = {signal.SIGINT}
_END_S = 30.0  # a cluster ends within seconds; one operation of a large model may take longer


@dataclass(frozen=True)
class _Failure:
    """Answer of a process instead of seconds."""

    traceback: str


class Arm:
    """One way to train; the constructor returns after the steps of the warm-up.

    Call ``close`` in a ``finally``. Raises WaferStreamError when a process fails or dies.
    """

    def __init__(self, name: str, openers: Sequence[Opener], warm_up_steps: int = 1) -> None:
        self.name = name
        self._processes: dict[Connection, SpawnProcess] = {}
        self._stopper = Stopper()
        spawn = get_context("spawn")
        try:
            for opener in openers:
                ours, theirs = spawn.Pipe()
                arguments = (theirs, opener, warm_up_steps)
                process = spawn.Process(target=_serve, args=arguments, name=name)
                signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)  # inherited
                process.start()
                self._processes[ours] = process
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
                theirs.close()  # so that its end is the end of the pipe
            self._answers()
            self._stop()
        except BaseException:
            self.close()
            raise

    def run(self, steps: int) -> float:
        """Train ``steps`` steps; return the seconds that the slowest process measured.

        Between two runs no process of the arm uses the host, not even to look for messages. So
        each run begins with a step that does not count: the first one after a stop is slower, by a
        tenth for arms that take their memory from the kernel anew in every step.
        """
        self._stopper.resume()
        self._train(UNCOUNTED_STEPS)
        seconds = self._train(steps)
        self._stop()
        return seconds

    @property
    def pids(self) -> list[int]:
        """The processes of the arm; all others that it has started are below them."""
        return [each.pid for each in self._processes.values() if each.pid is not None]

    def _train(self, steps: int) -> float:
        for pipe in self._processes:
            pipe.send(steps)
        return max(self._answers())

    def close(self) -> None:
        """End the arm's processes at once. Idempotent."""
        self._stopper.close()
        for process in self._processes.values():
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGINT)  # on SIGTERM Ray prints its stack
        for pipe in self._processes:
            pipe.close()  # wakes the process that reads it
        deadline = time.monotonic() + _END_S
        for process in self._processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
        self._processes.clear()

    def _stop(self) -> None:
        self._stopper.stop(self.pids)

    def _answers(self) -> list[float]:
        """Return the answers of all processes, in any order: others may wait for a failed one."""
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
                "an arm died",
                code="arm-died",
                where=self.name,
                value=f"exit code {process.exitcode}",
            ) from error
        if isinstance(answer, _Failure):
            raise WaferStreamError(
                "an arm failed", code="arm-failed", where=self.name, value=answer.traceback
            )
        return answer


def _serve(pipe: Connection, opener: Opener, warm_up_steps: int) -> None:
    """Run a process: set up, warm up, train on request until the pipe ends.

    It ends without freeing what its loop holds: a process group that is freed can hang.
    """
    signal.signal(signal.SIGINT, _leave)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)  # handled from here on
        with opener() as run:
            pipe.send(_seconds(run, warm_up_steps))
            while True:
                pipe.send(_seconds(run, _next(pipe)))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # the parent does not listen any more
    except Exception:
        with suppress(BrokenPipeError):
            pipe.send(_Failure(traceback.format_exc()))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _seconds(run: Callable[[int], object], steps: int) -> float:
    start_s = time.perf_counter()
    run(steps)
    return time.perf_counter() - start_s


def _next(pipe: Connection) -> int:
    """Wait for a command; at the end of the pipe, let nothing interrupt the unwinding."""
    try:
        steps: int = pipe.recv()
    except EOFError:
        _ignore_interrupts()
        raise
    return steps


def _leave(*_: object) -> NoReturn:
    """Interrupt the training and unwind."""
    _ignore_interrupts()
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    """Let nothing interrupt the unwinding: Ctrl-C arrives from terminal and parent."""
    signal.signal(signal.SIGINT, lambda *_: None)


class Stopper:
    """Stops processes with all below them, and continues them. Call ``close`` in a ``finally``."""

    def __init__(self) -> None:
        spawn = get_context("spawn")
        theirs, self._pipe = spawn.Pipe(duplex=False)
        self._keeper = spawn.Process(target=_keep, args=(theirs,), name="keeper")
        self._keeper.start()
        theirs.close()  # so that the end of this process is the end of the pipe
        self._stopped: list[int] = []

    def stop(self, roots: Iterable[int]) -> None:
        """Stop processes and all below them, parents first."""
        self._stopped = [pid for root in roots for pid in _tree(root)]
        self._pipe.send(self._stopped)
        _signal(self._stopped, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue all that is stopped."""
        _signal(self._stopped, signal.SIGCONT)
        self._stopped = []

    def close(self) -> None:
        """Continue all that is stopped and end the keeper. Idempotent."""
        self.resume()
        self._pipe.close()
        self._keeper.join()


def _keep(pipe: Connection) -> None:
    """Continue the processes that were named last when the pipe ends."""
    os.setsid()  # a signal to the group, as of Ctrl-C or timeout(1), is not for the keeper
    stopped: list[int] = []
    with suppress(EOFError):
        while True:
            stopped = pipe.recv()
    _signal(stopped, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all below it, each after its parent; itself alone if it has ended."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            for child in children.read_text().split():
                yield from _tree(int(child))
