"""Calls side by side in processes that end with this one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from waferstream.core.errors import ApplianceResourceExhausted

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    call: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Iterator[Result]:
    """Yield the results of a function, as they come; with one process, it is this one.

    Args:
        call: A function that can be pickled, as its items and results.
        items: What it is called with.
        processes: How many processes; 0: as many as there are processors.

    Raises:
        ApplianceResourceExhausted: A process was killed, mostly for want of memory.
    """
    number = min(processes or len(os.sched_getaffinity(0)), len(items))
    if number <= 1:
        yield from map(call, items)
        return
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(number, context, initializer=_begin)
    try:
        futures = [pool.submit(call, item) for item in items]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise ApplianceResourceExhausted(
            "a process was killed",
            code="preparing-process-killed",
            value=f"{number} processes",
            rule="each holds a portion of the text, and its tokens",
            remedy="take fewer --processes, or a smaller --bytes_per_file",
        ) from error
    except BaseException:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepare a process: it computes on one processor, and ends when its parent does."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was started by another"
    wait([parent.sentinel])
    os._exit(1)
