"""What a host of a Ray cluster has: versions, code, processor, memory.

The look at a host travels there with its code and needs only the standard library, so that it can
say what else the host lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from waferstream.core.errors import ClusterJobInitError
from waferstream.core.units import MIB, format_bytes

PACKAGES = (
    *("appliance", "csnode", "memoryx", "swarmx", "waferstream.checkpoint", "waferstream.compiler"),
    *("waferstream.core", "waferstream.host", "waferstream.machine", "waferstream.numerics"),
)
"""The packages whose code computes the weights; it must be equal on all hosts."""

_LEAST_SHARED_BYTES = 64 * MIB
"""Least free space of /dev/shm, where Ray keeps its objects."""


@dataclass(frozen=True)
class Facts:
    """What a host has; empty strings for what it lacks."""

    name: str
    python: str
    torch: str
    code: str  # a digest of the packages
    processor: str  # its name, and a digest of its kind and of variables that choose kernels
    cores: int
    shared_bytes: int  # free in /dev/shm
    free_bytes: int  # of memory, swap included

    def differences(self, other: Facts) -> list[tuple[str, str, str]]:
        """Return the facts that must be equal and differ: name, own value, the other's value."""
        pairs = (
            ("Python", self.python, other.python),
            ("torch", self.torch, other.torch),
            ("WaferStream's code", self.code, other.code),
        )
        return [pair for pair in pairs if pair[1] != pair[2]]


def compare(facts: Mapping[str, Facts], own: str) -> None:
    """Refuse hosts that differ from the host ``own`` in what must be equal.

    Raises:
        ClusterJobInitError: A host has other versions or other code, or no space for Ray's objects.
    """
    for each in facts.values():
        for what, found, expected in each.differences(facts[own]):
            raise ClusterJobInitError(
                f"{what} of a host must be that of the host of the program",
                code="host-differs",
                where=each.name,
                value=found or "not installed",
                rule=expected,
                remedy="install the same versions on every host, or ship the code with runtime_env",
            )
        if each.shared_bytes < _LEAST_SHARED_BYTES:
            raise ClusterJobInitError(
                "a host has too little space in /dev/shm",
                code="host-without-shared-memory",
                where=each.name,
                value=f"{format_bytes(each.shared_bytes)} are free",
                rule=f"at least {format_bytes(_LEAST_SHARED_BYTES)}",
                remedy="free /dev/shm there, or give the container more of it",
            )


def portable_look() -> Callable[[Sequence[str]], dict[str, str | int]]:
    """Return a function that Ray sends with its code; it returns the fields of ``Facts``."""

    def look(packages: Sequence[str]) -> dict[str, str | int]:
        import hashlib  # noqa: PLC0415
        import os  # noqa: PLC0415
        import platform  # noqa: PLC0415
        import shutil  # noqa: PLC0415
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        def fields_of(file: str) -> dict[str, str]:
            first = Path(file).read_text().split("\n\n")[0]
            pairs = (line.partition(":") for line in first.splitlines())
            return {name.strip(): rest.strip() for name, _, rest in pairs}

        digest, missing = hashlib.sha256(), False
        for package in packages:
            found = find_spec(package)
            if found is None or found.origin is None:
                missing = True
                continue
            folder = Path(found.origin).parent
            for path in sorted(folder.rglob("*.py")):
                digest.update(f"{package}/{path.relative_to(folder)}\0".encode())
                digest.update(path.read_bytes())
        memory, processor = fields_of("/proc/meminfo"), fields_of("/proc/cpuinfo")
        free_kib = (int(memory[k].split()[0]) for k in ("MemAvailable", "SwapFree"))
        changing = ("processor", "cpu MHz", "bogomips", "BogoMIPS", "microcode", "stepping")
        places = ("physical id", "core id", "apicid", "initial apicid", "siblings", "cpu cores")
        kind = {k: v for k, v in processor.items() if k not in (*changing, *places)}
        libraries = ("ATEN_", "MKL_", "DNNL_", "ONEDNN_")
        kind |= {k: v for k, v in sorted(os.environ.items()) if k.startswith(libraries)}
        name = kind.get("model name") or platform.machine()
        try:
            torch = version("torch")
        except PackageNotFoundError:
            torch = ""
        return {
            "name": platform.node(),
            "python": platform.python_version(),
            "torch": torch,
            "code": "" if missing else digest.hexdigest()[:16],
            "processor": f"{name}, {hashlib.sha256(repr(kind).encode()).hexdigest()[:8]}",
            "cores": len(os.sched_getaffinity(0)),
            "shared_bytes": shutil.disk_usage("/dev/shm").free,
            "free_bytes": sum(free_kib) << 10,
        }

    return look
