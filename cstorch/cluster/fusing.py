"""Kernels of a program that a C++ compiler makes faster, while the cluster starts.

``runtime.engine.kernels: auto`` compiles a program whose run takes so long that a few percent of it
are more than compiling, and runs those of its kernels that were measured to be faster. A checkpoint
keeps the choice, and a run that goes on from it takes the same kernels.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from appliance.spec import RuntimeSpec
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.fusion.cache import Entry
from waferstream.compiler.fusion.program import Fusion, Request
from waferstream.core.program.fused import FusedKernel
from waferstream.core.program.program import Program
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


CHOICES = "kernels"
"""The state of a checkpoint that has the choice for each kind of program."""

Choice = list[str]
"""A character for each segment, ``c`` where its kernel is compiled, else ``e``: in full
micro-batches, and in short ones where there are any."""


class Fusing:
    """The kernels of a program on their way to compiled ones.

    Args:
        compiled: The program.
        runtime: Where it runs.
        root: The compile cache; by default a folder of this user.
        num_steps: The steps of the run.
        began_with: What the run began with, if it goes on from a checkpoint; ``auto`` chooses that.
    """

    def __init__(
        self,
        compiled: Compiled,
        runtime: RuntimeSpec,
        root: Path | None,
        num_steps: int,
        began_with: Choice | None = None,
    ) -> None:
        self._program = compiled.program
        self._engine = runtime.engine
        self._fusion: Fusion | None = None
        sizes = (compiled.kernels, *([] if compiled.short is None else [compiled.short.kernels]))
        self.choice: Choice = ["e" * len(kernels) for kernels in sizes]
        """What runs, once the kernels are compiled."""
        self._began_with: Choice | None = None
        if self._engine.code == "auto" and began_with is not None:
            if list(map(len, began_with)) == list(map(len, self.choice)):
                self._began_with = began_with
            else:
                log.warning("Kernels are chosen anew: the checkpoint has those of another program")
        if self._engine.code == "eager":
            return
        fuses = (self._engine.fuses(segment.layer) for segment in self._program.segments)
        if runtime.device != "cpu" or not any(fuses):
            log.info("Kernels: eager, since it is not torch on the processor that computes them")
            return
        if self._began_with == self.choice:
            log.info("Kernels: eager, as the run began")
            return
        if self._engine.code == "auto" and not (
            self._began_with or _is_long(self._program, num_steps)
        ):
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
        found = [] if self._fusion is None else self._fusion.finish()
        fused = [self._chosen(size, entries) for size, entries in enumerate(found)]
        if fused:
            self.choice = ["".join("e" if k is None else "c" for k in each) for each in fused]
            log.info("%s", self._told(found[0], fused[0]))
            installation = replace(installation, fused=fused[0])
        if installation.short is not None and fused[1:]:
            short = replace(installation.short, fused=fused[1])
            installation = replace(installation, short=short)
        if self._began_with not in (None, self.choice):
            log.warning(
                "Kernels are not those that the run began with: its weights differ from now on by "
                "rounding"
            )
        return installation

    def close(self) -> None:
        """End the compilers. Idempotent."""
        if self._fusion is not None:
            self._fusion.close()

    def _chosen(self, size: int, entries: Sequence[Entry]) -> tuple[FusedKernel | None, ...]:
        """Return the kernels that run instead of those of the segments, for one size."""
        choice: Sequence[bool] = [True] * len(entries)
        if self._began_with is not None:
            choice = [code == "c" for code in self._began_with[size]]
        elif self._engine.code == "auto":
            choice = [entry.fused_s <= _FASTER * entry.eager_s for entry in entries]
        return tuple(
            entry.fused if is_chosen and self._engine.fuses(segment.layer) else None
            for segment, entry, is_chosen in zip(
                self._program.segments, entries, choice, strict=True
            )
        )

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
            reasons.add("as the run began" if self._began_with else "not faster when tried")
        return f"{told}; the others: {'; '.join(sorted(reasons))}" if reasons else told


def _is_long(program: Program, num_steps: int) -> bool:
    flops = sum(work.flops for segment in program.segments for work in segment.work)
    return flops * program.num_micro_batches * num_steps / _FLOPS_PER_S >= LONG_RUN_S
