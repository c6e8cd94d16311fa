"""The fused kernels of a program: those of the cache, and what a process beside this one compiles.

The segments are walked in order, since the shapes and strides of a kernel's operands are those of
the results of others. Equal layers have equal texts and operands, so they share one entry.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from waferstream.compiler.fusion.cache import Entry, FusionCache, Operand, key_of, operand_of
from waferstream.compiler.fusion.regions import Normalized, normalized
from waferstream.compiler.fusion.shared_object import compiler
from waferstream.core.optimizer import LOSS_SCALE_INPUT
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.label_means import SEED_INPUT
from waferstream.core.program.program import Program, TensorSpec
from waferstream.core.program.segment import Segment
from waferstream.numerics.keyed_random import BATCH_KEY_INPUT, KEY_INPUT
from waferstream.numerics.precision import dtype_in_program

log = logging.getLogger("waferstream")

NUMBERS = (KEY_INPUT, BATCH_KEY_INPUT, SEED_INPUT, LOSS_SCALE_INPUT)
"""Operands that are numbers."""


@dataclass(frozen=True)
class Request:
    """A program to fuse: segments and kernels of each size of its micro-batches, the full first."""

    program: Program
    sized: tuple[tuple[tuple[Segment, ...], tuple[KernelSource, ...]], ...]
    root: Path
    """The folder of the compile cache."""
    num_processes: int = 1
    """Compilers at a time."""


EntryOf = Callable[[str, Normalized, KernelSource, tuple[Operand, ...]], Entry | None]
"""Returns the entry of a kernel, by key; None ends the walk."""


def entries(request: Request, entry_of: EntryOf) -> list[list[Entry]] | None:
    """Return the entry of each kernel, by the size of micro-batches; None if the walk ended.

    A kernel that reads something of unknown shape stays as it is.
    """
    program = request.program
    known: dict[tuple[str, tuple[Operand, ...]], Entry] = {}
    found = []
    for index, (segments, kernels) in enumerate(request.sized):
        micro_batch = program.num_micro_batches - 1 if index else 0
        values = dict(_inputs(program, micro_batch))
        of_size: list[Entry] = []
        for segment, kernel in zip(segments, kernels, strict=True):
            names = [*segment.weights, *segment.inputs]
            if any(name not in values for name in names):
                of_size.append(Entry((), reason="an operand has no shape that is known before"))
                continue
            text = normalized(kernel)
            constants = [operand_of(kernel.constants[name]) for name in text.constants]
            operands = (*(values[name] for name in names), *constants)
            entry = known.get((text.text, operands))
            if entry is None:
                entry = entry_of(key_of(text, operands), text, kernel, operands)
                if entry is None:
                    return None
                known[text.text, operands] = entry
            values.update(zip(segment.outputs, entry.results, strict=False))
            of_size.append(entry)
        found.append(of_size)
    return found


def _inputs(program: Program, micro_batch: int) -> Mapping[str, Operand]:
    """Return weights and inputs of a micro-batch as kernels take them."""
    half = program.stream_dtype
    held = "float32" if program.holds_fp32 else half
    in_program = str(dtype_in_program(half)).removeprefix("torch.")

    def dtype(spec: TensorSpec) -> str:
        return held if spec.dtype == in_program else spec.dtype

    weights = {spec.name: _contiguous(spec.shape, held) for spec in program.parameters}
    tensors = [*program.state.reads, *program.inputs_of(micro_batch)]
    inputs = {spec.name: _contiguous(spec.shape, dtype(spec)) for spec in tensors}
    numbers = [each.name for each in program.step_inputs if each.is_number]
    return {**weights, **inputs, **dict.fromkeys([*NUMBERS, *numbers])}


def _contiguous(shape: Sequence[int], dtype: str) -> Operand:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return dtype, tuple(shape), tuple(reversed(strides))


class Fusion:
    """The fused kernels of a program, which a process compiles until they are asked for.

    Without a compiler, or where the process fails, kernels stay as they are.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._cache = FusionCache(request.root)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._found: list[list[Entry]] | None = None
        if compiler() is None:
            log.warning("Kernels stay eager: there is no C++ compiler (g++, clang++ or $CXX)")
            return
        self._found = entries(request, self._kept)
        if self._found is None:
            log.info("Compiling kernels of %s", request.program.digest)
            self._folder = TemporaryDirectory(prefix="waferstream-kernels-")
            root = _writable(request.root, self._folder.name)
            self._cache, request = FusionCache(root), replace(request, root=root)
            options = ("-P", "-W", "ignore", "-m", "waferstream.compiler.fusion.worker")
            self._process = subprocess.Popen(
                [sys.executable, *options, self._folder.name],
                env=_environment(self._folder.name),
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
            assert self._process.stdin is not None
            with suppress(BrokenPipeError), self._process.stdin as pipe:
                pipe.write(pickle.dumps(request))

    def finish(self) -> list[list[Entry]]:
        """Wait for the compilers; return the entries of all kernels, none without compiler."""
        if self._process is not None:
            status = self._process.wait()
            self._found = entries(self._request, self._kept)
            self.close()
            if self._found is None:
                log.warning("Kernels stay eager: compiling them failed (exit code %d)", status)
        return self._found or []

    def close(self) -> None:
        """End the process and its compilers, and remove their files. Idempotent."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _kept(self, key: str, *_: object) -> Entry | None:
        return self._cache.load(key)


def _writable(root: Path, own: str) -> Path:
    """Return the folder of the cache, or one of this run where that takes no files."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=root):
            return root
    except OSError as error:
        log.warning("Compiled kernels serve this run alone: %s", error)
        return Path(own)


def _environment(folder: str) -> dict[str, str]:
    """Return the environment of the process: its files, and those of compilers, lie in a folder.

    Settings of inductor that a user has made are left out, since the code depends on them.
    """
    own = {name: value for name, value in os.environ.items() if not _is_of_inductor(name)}
    path = os.pathsep.join(filter(None, sys.path))
    return {**own, "PYTHONPATH": path, "TMPDIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}


def _is_of_inductor(name: str) -> bool:
    return name.startswith(("TORCHINDUCTOR_", "TORCH_COMPILE_"))
