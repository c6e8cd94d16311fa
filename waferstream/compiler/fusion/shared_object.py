"""Shared objects of loops in C++, and the processor and compiler that they depend on."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

_PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>\n"
_LIMIT_S = 300.0
"""Of one compiler; it takes less than a minute on a busy core."""


@functools.cache
def processor() -> str:
    """Return what a shared object of this host runs on: the model of the processor and its flags.

    Code is compiled for the very processor (``-march=native``).
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    parts = (line.partition(":") for line in lines)
    fields = {name.strip(): value for name, _, value in parts}
    names = ("vendor_id", "cpu family", "model", "flags", "Features")
    told = [f"{name}: {' '.join(sorted(fields.get(name, '').split()))}" for name in names]
    told += [platform.machine(), torch.backends.cpu.get_cpu_capability()]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


@functools.cache
def compiler() -> str | None:
    """Return the name and version of the compiler; None if there is none.

    ``CXX`` names another one than ``g++`` or ``clang++``.
    """
    found = compiler_path()
    if found is None:
        return None
    try:
        told = subprocess.run(
            [found, "--version"], check=False, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.splitlines()[0] if told.returncode == 0 and told.stdout else None


def compiler_path() -> str | None:
    """Return the path of the C++ compiler, None if there is none."""
    if own := os.environ.get("CXX"):
        return shutil.which(own)
    return shutil.which("g++") or shutil.which("clang++")


def compile_loops(sources: Sequence[str]) -> bytes:
    """Return the shared object of some functions in C++.

    Raises:
        OSError: The compiler cannot run.
        CalledProcessError: It refuses the source.
        TimeoutExpired: It takes too long.
    """
    with TemporaryDirectory(prefix="waferstream-loops-") as folder:
        source = Path(folder) / "loops.cpp"
        source.write_text(_PREFIX + "\n".join(sources))
        command = _command(source, folder)
        subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
        return (Path(folder) / "loops.so").read_bytes()


def _command(source: Path, folder: str) -> list[str]:
    """Return the command as inductor would run it, without debug symbols."""
    from torch._inductor import config, cpp_builder  # noqa: PLC0415  (slow)
    from torch._inductor.cpu_vec_isa import pick_vec_isa  # noqa: PLC0415

    with config.patch({"cpp.vec_isa_ok": True, "cpp.threads": 1}):
        options = cpp_builder.CppTorchOptions(
            vec_isa=pick_vec_isa(), warning_all=False, compiler=compiler_path() or ""
        )
        builder = cpp_builder.CppBuilder("loops", str(source), options, output_dir=folder)
    return [*shlex.split(builder.get_command_line()), "-g0"]
