"""The result of a compile, and its JSON form for the compile cache.

The JSON form holds plain data only: reading it executes nothing. Kernels are text, and become code
in ``KernelSource.build`` alone. So ``compiled_from_json`` checks the digest that the caller asked
for, and the seal: only what this user has compiled may run, not what a stranger has put there.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import TypeAdapter

from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.program import Program
from waferstream.core.program.segment import Segment
from waferstream.core.roles.installation import GradientKernel, SizedKernels
from waferstream.host.user_state import is_sealed, sealed

FORMAT = 8
"""Version of the JSON form; other versions are not read."""

_NUMERICS = "waferstream.numerics."
"""Where the functions are that kernels may call."""

_PROGRAM = TypeAdapter(Program)
_SEGMENTS = TypeAdapter(tuple[Segment, ...])


class DamagedArtifactError(ValueError):
    """A compile artifact is truncated, changed, foreign, or of another program."""


@dataclass(frozen=True)
class Compiled:
    """A program with the kernel of each of its segments.

    ``label_counts`` counts the labels of a micro-batch, where the step has means over labels;
    ``whole`` computes inputs that are values of the whole batch (Program.whole); ``guards`` make of
    a loss what Program.guards do;
    ``state_update`` computes the buffers that the step writes (StepState); ``short`` is for the
    micro-batches with one sample less, where there are any; ``norms`` computes NormResults;
    ``gradient_kernels`` change gradients of the batch before their update.
    ``step_digest`` is that of the step and of all that decides the program, besides its target.
    """

    program: Program
    kernels: tuple[KernelSource, ...]
    label_counts: KernelSource | None = None
    state_update: KernelSource | None = None
    short: SizedKernels | None = None
    norms: KernelSource | None = None
    step_digest: str = ""
    gradient_kernels: tuple[GradientKernel, ...] = ()
    whole: KernelSource | None = None
    guards: tuple[KernelSource, ...] = ()

    def for_target(self, target: str) -> Compiled:
        """Return the program for another cluster: segments and kernels are the same."""
        digest = program_digest(self.step_digest, target)
        return replace(self, program=replace(self.program, digest=digest))

    def is_like(self, other: Compiled) -> bool:
        """Return whether two programs differ in nothing but their names."""
        texts = [
            compiled_to_json(
                replace(each, program=replace(each.program, digest=""), step_digest="")
            )
            for each in (self, other)
        ]
        return texts[0] == texts[1]


def program_digest(step_digest: str, target: str) -> str:
    """Return ``cs_<digits>``, the name of a program for the cluster that ``target`` describes."""
    digest = hashlib.sha256(f"{step_digest} for {target}".encode()).digest()
    return f"cs_{int.from_bytes(digest[:8], 'little')}"


def compiled_to_json(compiled: Compiled) -> str:
    """Return the JSON form: format version, seal of the content, content."""
    content = {
        "program": _PROGRAM.dump_python(compiled.program, mode="json"),
        "step_digest": compiled.step_digest,
        "kernels": [_kernel_data(kernel) for kernel in compiled.kernels],
        "label_counts": compiled.label_counts and _kernel_data(compiled.label_counts),
        "state_update": compiled.state_update and _kernel_data(compiled.state_update),
        "norms": compiled.norms and _kernel_data(compiled.norms),
        "whole": compiled.whole and _kernel_data(compiled.whole),
        "guards": [_kernel_data(kernel) for kernel in compiled.guards],
        "short": compiled.short and _sized_data(compiled.short),
        "gradient_kernels": [
            [each.parameter, _kernel_data(each.source), each.reads_weight]
            for each in compiled.gradient_kernels
        ],
    }
    return json.dumps({"format": FORMAT, "seal": sealed(_canonical(content)), "content": content})


def compiled_from_json(text: str | bytes, digest: str) -> Compiled:
    """Read the JSON form of the program with this digest.

    Raises:
        DamagedArtifactError: The text is not the JSON form, this user has not sealed its content,
            or the program has another digest.
    """
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise DamagedArtifactError(f"format {data['format']}, not {FORMAT}")
        content = data["content"]
        if not is_sealed(_canonical(content), data["seal"]):
            raise DamagedArtifactError("changed, or made by another user")
        program = _PROGRAM.validate_json(json.dumps(content["program"]))
        kernels, guards = (
            tuple(_kernel(kernel) for kernel in content[name]) for name in ("kernels", "guards")
        )
        label_counts, state_update, norms, whole = (
            None if content[name] is None else _kernel(content[name])
            for name in ("label_counts", "state_update", "norms", "whole")
        )
        short = None if content["short"] is None else _sized(content["short"])
        step_digest = str(content["step_digest"])
        gradient_kernels = tuple(
            GradientKernel(str(name), _kernel(source), bool(reads_weight))
            for name, source, reads_weight in content["gradient_kernels"]
        )
    except DamagedArtifactError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise DamagedArtifactError(f"not a compile artifact: {error!r}") from error
    if program.digest != digest:
        raise DamagedArtifactError(f"program {program.digest}, not {digest}")
    if len(kernels) != len(program.segments):
        raise DamagedArtifactError(f"{len(kernels)} kernels, {len(program.segments)} segments")
    if (short is None) != (program.num_short == 0):
        raise DamagedArtifactError(f"kernels of {program.num_short} short micro-batches are absent")
    return Compiled(
        program,
        kernels,
        label_counts,
        state_update,
        short,
        norms,
        step_digest,
        gradient_kernels,
        whole,
        guards,
    )


def _canonical(content: Any) -> bytes:
    """Return JSON data in canonical form."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _kernel_data(kernel: KernelSource) -> dict[str, Any]:
    return {
        "text": kernel.text,
        "modules": {name: list(place) for name, place in kernel.modules.items()},
        "constants": {name: _tensor_data(tensor) for name, tensor in kernel.constants.items()},
    }


def _kernel(data: dict[str, Any]) -> KernelSource:
    """Read a kernel; DamagedArtifactError if it imports a module that is not of the numerics."""
    modules = {name: (str(module), str(attr)) for name, (module, attr) in data["modules"].items()}
    if foreign := [module for module, _ in modules.values() if not module.startswith(_NUMERICS)]:
        raise DamagedArtifactError(f"kernel imports {', '.join(foreign)}, not of {_NUMERICS}")
    constants = {name: _tensor(tensor) for name, tensor in data["constants"].items()}
    return KernelSource(str(data["text"]), modules, constants)


def _sized_data(sized: SizedKernels) -> dict[str, Any]:
    return {
        "segments": _SEGMENTS.dump_python(sized.segments, mode="json"),
        "kernels": [_kernel_data(kernel) for kernel in sized.kernels],
        "label_counts": sized.label_counts and _kernel_data(sized.label_counts),
        "state_update": sized.state_update and _kernel_data(sized.state_update),
    }


def _sized(data: dict[str, Any]) -> SizedKernels:
    label_counts, state_update = (
        None if data[name] is None else _kernel(data[name])
        for name in ("label_counts", "state_update")
    )
    return SizedKernels(
        _SEGMENTS.validate_json(json.dumps(data["segments"])),
        tuple(_kernel(kernel) for kernel in data["kernels"]),
        label_counts,
        state_update,
    )


def _tensor_data(tensor: torch.Tensor) -> dict[str, Any]:
    """Return dtype, layout and storage of a constant."""
    # The whole storage is kept: a constant may be a view (strided, or expanded with stride 0).
    storage = torch.empty(0, dtype=torch.uint8).set_(tensor.detach().cpu().untyped_storage())
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "storage": base64.b64encode(storage.numpy().tobytes()).decode(),
    }


def _tensor(data: dict[str, Any]) -> torch.Tensor:
    """Rebuild a constant with its dtype and layout."""
    raw = bytearray(base64.b64decode(data["storage"], validate=True))
    flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
    dtype = getattr(torch, data["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise DamagedArtifactError(f"{data['dtype']} is not a dtype")
    typed = torch.empty(0, dtype=dtype)
    return typed.set_(flat.untyped_storage(), data["offset"], data["shape"], data["stride"])
