"""What a host of a Ray cluster has: versions, code, processor, memory, and the bits it computes.

The look at a host travels there with its code and needs only the standard library, so that it can
say what else the host lacks.

torch, MKL and oneDNN choose kernels by the kind of the processor. Those for another instruction set
add in another order, or round a function to the other neighbour, so two kinds of processors can
train the same model to different bits. Whether they do, only their results tell: a digest of
torch's kernels on fixed values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from waferstream.core.errors import ClusterJobInitError
from waferstream.core.units import MIB, format_bytes

PACKAGES = (
    *("appliance", "csnode", "memoryx", "swarmx", "waferstream.checkpoint", "waferstream.compiler"),
    *("waferstream.core", "waferstream.host", "waferstream.machine", "waferstream.numerics"),
)
"""The packages whose code computes the weights; it must be equal on all hosts."""

_LEAST_SHARED_BYTES = 64 * MIB
"""Least free space of /dev/shm, where Ray keeps its objects."""

_ROWS, _INNER, _COLUMNS = 128, 1024, 192  # MKL adds such a product in several parts
_DTYPES = (torch.float32, torch.bfloat16)


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
    gpus: str  # the names of their kinds, as the driver has them

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
        gpus = Path("/proc/driver/nvidia/gpus").glob("*/information")
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
            "gpus": ", ".join(sorted({fields_of(str(gpu)).get("Model", "") for gpu in gpus})),
        }

    return look


def arithmetic_digest() -> str:
    """Return the digest of products, attention, norms, functions, sums and an update.

    One thread computes, as on a CS node.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        digest = hashlib.sha256()
        for dtype in _DTYPES:
            for result in _results(dtype):
                digest.update(result.detach().float().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]
    finally:
        torch.set_num_threads(threads)


def compare_arithmetic(digests: Mapping[str, str], own: str) -> None:
    """Refuse hosts, by name, that compute other bits than the host ``own``.

    Raises:
        ClusterJobInitError: A digest differs.
    """
    for host, found in digests.items():
        if found != digests[own]:
            raise ClusterJobInitError(
                "a host computes other bits than the host of the program",
                code="host-computes-differently",
                where=host,
                value=f"kernels of torch on fixed values: {found}",
                rule=f"{own}: {digests[own]}",
                remedy="use hosts with one kind of processor, or let weights depend on which host "
                "computes what: runtime.mixed_processors: true",
            )


def compare_gpus(facts: Iterable[Facts]) -> None:
    """Refuse hosts whose GPUs are of several kinds; those without one have none to compare.

    Raises:
        ClusterJobInitError: Two hosts have GPUs of other kinds.
    """
    hosts = {each.gpus: each.name for each in facts if each.gpus}
    if len(hosts) > 1:
        raise ClusterJobInitError(
            "the GPUs of all hosts must be of one kind",
            code="hosts-with-other-gpus",
            where="runtime.device: cuda",
            value="; ".join(f"{host} has {gpus}" for gpus, host in hosts.items()),
            rule="kernels of another kind of GPU compute other bits",
            remedy="use hosts with one kind of GPU, or let weights depend on which host computes "
            "what: runtime.mixed_processors: true",
        )


def _values(seed: int, *shape: int) -> torch.Tensor:
    """Return fp32 values in [-1, 1) that are the same on every host: integers over 2^15."""
    count = torch.Size(shape).numel()
    integers = (torch.arange(count, dtype=torch.int64) + seed) * 2654435761 % (1 << 32) >> 16
    return ((integers - (1 << 15)).to(torch.float32) / (1 << 15)).view(shape)


def _results(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Yield the results of kernels that a training step consists of."""
    left = _values(1, _ROWS, _INNER).to(dtype).requires_grad_()
    right = _values(2, _INNER, _COLUMNS).to(dtype).requires_grad_()
    product = left @ right
    normed = functional.layer_norm(product, (_COLUMNS,))
    heads = normed.view(1, _ROWS, 3, _COLUMNS // 3).transpose(1, 2)
    mixed = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    images = left.view(1, 8, _ROWS, _ROWS)
    kernels = right[:72].reshape(-1)[: 16 * 8 * 9].view(16, 8, 3, 3)
    outputs = (
        functional.gelu(product),
        functional.gelu(product, approximate="tanh"),
        functional.silu(product),
        functional.rms_norm(product, (_COLUMNS,)),
        functional.conv2d(images, kernels, padding=1),
        mixed,
        product.float().log_softmax(-1),
        left.float().abs().add(0.5).log().sqrt().rsqrt().tanh().sin(),
    )
    yield from (product, *outputs)
    total = torch.stack([output.float().sum() for output in outputs])
    yield total
    gradients = torch.autograd.grad(total.sum(), (left, right))
    yield from gradients
    if dtype == torch.float32:
        yield _updated(right.detach().clone(), gradients[1])


def _updated(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return a weight after one step of AdamW."""
    parameter = torch.nn.Parameter(weight)
    parameter.grad = gradient
    torch.optim.AdamW([parameter], lr=1e-3, fused=True).step()
    return parameter
