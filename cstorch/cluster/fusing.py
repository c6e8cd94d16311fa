"""Kernels of a program that a C++ compiler makes faster, while the cluster starts.

``runtime.engine.kernels: auto`` compiles a program whose run takes so long that a few percent of it
are more than compiling, and runs those of its kernels that were measured to be faster. What was
measured lies in the compile cache, so the choice is the same with the same cache.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from appliance.spec import RuntimeSpec
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.fusion.cache import Entry
from waferstream.compiler.fusion.program import Fusion, Request
from waferstream.core.program.fused import FusedKernel
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Segment
from waferstream.core.roles.installation import Installation
from waferstream.core.units import counted
from waferstream.host.user_state import state_folder

log = logging.getLogger("waferstream")

LONG_RUN_S = 2000.0
"""``auto`` compiles from so much processor time of a run on: of it three percent are a minute,
which compiling takes once."""

_FLOPS_PER_S = 5e10
"""Of a core of the host, about."""

_FASTER = 0.97
"""``auto`` runs a compiled kernel that takes at most so much of the time of the eager one."""


class Fusing:
    """The kernels of a program on their way to compiled ones.

    Args:
        compiled: The program.
        runtime: Where it runs.
        root: The compile cache; by default a folder of this user.
        num_steps: The steps of the run.
    """

    def __init__(
        self, compiled: Compiled, runtime: RuntimeSpec, root: Path | None, num_steps: int
    ) -> None:
        self._program = compiled.program
        self._engine = runtime.engine
        self._fusion: Fusion | None = None
        if self._engine.code == "eager":
            return
        fuses = (self._engine.fuses(segment.layer) for segment in self._program.segments)
        if runtime.device != "cpu" or not any(fuses):
            log.info("Kernels: eager, since it is not torch on the processor that computes them")
            return
        if self._engine.code == "auto" and not _is_long(self._program, num_steps):
            log.info("Kernels: eager, since the run is too short for compiling to pay")
            return
        sized = [(self._program.segments, compiled.kernels)]
        if compiled.short is not None:
            sized.append((compiled.short.segments, compiled.short.kernels))
        cores = runtime.cores
        processes = len(os.sched_getaffinity(0)) if cores == "auto" else cores
        folder = root or state_folder() / "kernels"
        self._fusion = Fusion(Request(self._program, tuple(sized), folder, processes))

    def finish(self, installation: Installation) -> Installation:
        """Wait for the compilers; return an installation with the compiled kernels."""
        if self._fusion is None:
            return installation
        full, *short = self._fusion.finish() or [[]]
        if not full:
            return installation
        fused = tuple(map(self._chosen, installation.program.segments, full))
        log.info("%s", self._told(full, fused))
        if installation.short is not None and short:
            kernels = tuple(map(self._chosen, installation.short.segments, short[0]))
            installation = replace(installation, short=replace(installation.short, fused=kernels))
        return replace(installation, fused=fused)

    def close(self) -> None:
        """End the compilers. Idempotent."""
        if self._fusion is not None:
            self._fusion.close()

    def _chosen(self, segment: Segment, entry: Entry) -> FusedKernel | None:
        """Return the kernel that runs instead of that of a segment."""
        is_slow = self._engine.code == "auto" and entry.fused_s > _FASTER * entry.eager_s
        return None if is_slow or not self._engine.fuses(segment.layer) else entry.fused

    def _told(self, entries: list[Entry], fused: tuple[FusedKernel | None, ...]) -> str:
        count = sum(kernel is not None for kernel in fused)
        pairs = list(zip(entries, fused, strict=True))
        eager_s = sum(entry.eager_s for entry, _ in pairs)
        now_s = sum(entry.eager_s if kernel is None else entry.fused_s for entry, kernel in pairs)
        told = f"Kernels: {count} of {counted(len(fused), 'segment')} compiled"
        if eager_s:
            told += f", {now_s / eager_s:.2f} of the processor time of eager ones when tried"
        reasons = {entry.reason for entry in entries if entry.reason}
        if self._engine.code == "auto" and count < len(fused):
            reasons.add("not faster when tried")
        return f"{told}; the others: {'; '.join(sorted(reasons))}" if reasons else told


def _is_long(program: Program, num_steps: int) -> bool:
    flops = sum(work.flops for segment in program.segments for work in segment.work)
    return flops * program.num_micro_batches * num_steps / _FLOPS_PER_S >= LONG_RUN_S
