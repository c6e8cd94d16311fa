"""The result of a compile: what the artifact cache keeps and a cluster loads."""

from __future__ import annotations

from dataclasses import dataclass

from wsc.core.kernel_source import KernelSource
from wsc.core.program import Program


@dataclass(frozen=True)
class Compiled:
    """A program with the kernel of each of its segments."""

    program: Program
    kernels: tuple[KernelSource, ...]
