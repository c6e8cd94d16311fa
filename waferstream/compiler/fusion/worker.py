"""Compiles the kernels of a program into the compile cache: a process beside the one that trains.

    python -m waferstream.compiler.fusion.worker FOLDER < request

The folder, made by the parent, holds the files of this process and of its compilers. Text and
shapes come from the parent (``program.Request``, pickled). Each kernel is stored as soon as it is
compiled, so that a process that is killed leaves whole ones. It ends with its parent, and so do its
compilers, which are the rest of its process group.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from waferstream.compiler.fusion.cache import Entry, FusionCache, Operand, operand_of
from waferstream.compiler.fusion.program import Request, entries
from waferstream.compiler.fusion.regions import Normalized, NotFusibleError
from waferstream.compiler.fusion.shared_object import compile_loops, processor
from waferstream.core.program.fused import FusedKernel, constants_read
from waferstream.core.program.kernel_source import KernelSource
from waferstream.numerics.precision import DTYPES

log = logging.getLogger("waferstream")

_TIMED_CALLS = 5
_TIMED_S = 0.6
"""Kernels are called no more once their calls have taken so long together."""

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """Read a request, fill the cache."""
    signal.signal(signal.SIGTERM, _end)
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    request: Request = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the parent
    fill(request)


def _end(*_: object) -> None:
    """End without a parent that would clean up: remove the files, kill the process group."""
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def fill(request: Request) -> None:
    """Compile the kernels that the cache does not have."""
    torch.set_num_threads(1)
    with torch.no_grad(), ThreadPoolExecutor(request.num_processes) as compilers:
        worker = _Worker(FusionCache(request.root), compilers)
        entries(request, worker.entry_of)
        worker.finish()


class _Worker:
    """Entries that are made, while compilers run."""

    def __init__(self, cache: FusionCache, compilers: ThreadPoolExecutor) -> None:
        self._cache, self._compilers = cache, compilers
        self._begun: dict[str, tuple[Future[Entry], KernelSource, tuple[Operand, ...]]] = {}

    def entry_of(
        self, key: str, text: Normalized, kernel: KernelSource, operands: tuple[Operand, ...]
    ) -> Entry:
        """Return the entry of a kernel, or of its results alone while it is compiled."""
        if (kept := self._cache.load(key)) is not None:
            return kept
        values = examples(operands)
        constants = len(constants_read(kernel.text))
        try:
            results = kernel.build()(*values[: len(values) - constants])
        except Exception as error:  # whatever an op of the user's model does not like
            return self._stays(key, Entry((), reason=f"its operands were refused: {error}"))
        entry = Entry(tuple(map(operand_of, results)))
        try:
            from waferstream.compiler.fusion.kernel import written  # noqa: PLC0415  (slow)

            found = written(text, values)
        except NotFusibleError as error:
            return self._stays(key, replace(entry, reason=str(error)))
        except Exception as error:  # inductor has errors of many types
            return self._stays(key, replace(entry, reason=f"inductor: {error!r}"[:500]))
        loops = tuple((loop.name, loop.num_tensors) for loop in found.loops)
        sources = [loop.source for loop in found.loops]

        def compiled() -> Entry:
            shared_object = compile_loops(sources)
            return replace(entry, fused=FusedKernel(found.text, loops, shared_object, processor()))

        self._begun[key] = self._compilers.submit(compiled), kernel, operands
        return entry

    def _stays(self, key: str, entry: Entry) -> Entry:
        self._cache.store(key, entry)
        return entry

    def finish(self) -> None:
        """Wait for the compilers; try and time what they have made, and keep it."""
        reasons: set[str] = set()
        for key, (future, kernel, operands) in self._begun.items():
            try:
                self._cache.store(key, tried(future.result(), kernel, operands))
            except CancelledError:
                pass
            except subprocess.TimeoutExpired as error:
                reasons.add(f"the C++ compiler took more than {error.timeout:.0f} s")
                self._compilers.shutdown(wait=False, cancel_futures=True)
            except subprocess.CalledProcessError as error:
                detail = error.stderr.decode(errors="replace")[-300:]
                reasons.add(f"the C++ compiler ended with {error.returncode}: {detail}")
            except OSError as error:
                reasons.add(str(error))
        for reason in sorted(reasons):
            log.warning("Kernels stay eager: %s", reason)


def tried(entry: Entry, kernel: KernelSource, operands: Sequence[Operand]) -> Entry:
    """Return an entry with its times; without a fused kernel that fails, or has other results."""
    assert entry.fused is not None, "it has been compiled"
    values = examples(operands)
    operands_alone = values[: len(values) - len(constants_read(kernel.text))]
    try:
        eager, fused = kernel.build(), entry.fused.build(kernel)
        results = tuple(map(operand_of, fused(*operands_alone)))
    except (AttributeError, AssertionError, NameError, RuntimeError, TypeError) as error:
        return replace(entry, fused=None, reason=f"it failed when tried: {error!r}"[:500])
    if results != entry.results:
        return replace(entry, fused=None, reason="its results have other shapes or strides")
    eager_s, fused_s = _seconds((eager, fused), operands_alone)
    return replace(entry, eager_s=eager_s, fused_s=fused_s)


def _seconds(calls: Sequence[Callable[..., object]], operands: Sequence[Any]) -> list[float]:
    """Return the processor time of the fastest of some calls of each, in turn, on this thread.

    What else the host does slows neighbouring calls alike.
    """
    found: list[list[float]] = [[] for _ in calls]
    while len(found[0]) < _TIMED_CALLS and sum(map(sum, found)) < _TIMED_S:
        for call, seconds in zip(calls, found, strict=True):
            begin_s = time.thread_time()
            call(*operands)
            seconds.append(time.thread_time() - begin_s)
    return list(map(min, found))


def examples(operands: Sequence[Operand]) -> list[Any]:
    """Return operands to try a kernel on: numbers around 0, and index 0."""
    generator = torch.Generator().manual_seed(0)
    return [1 if each is None else _example(*each, generator) for each in operands]


def _example(
    dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    tensor = torch.empty_strided(
        shape, strides, dtype=DTYPES.get(dtype) or getattr(torch, dtype.removeprefix("torch."))
    )
    if tensor.is_floating_point():
        return tensor.normal_(generator=generator)
    return tensor.zero_()


if __name__ == "__main__":
    main()
