"""What a session measures: the device, and the sizes of its models."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from appliance.spec import RuntimeSpec
from benchmarks.streaming.workload import Workload
from csnode.devices import DeviceName
from waferstream.core.units import GIB, MIB

Note = Callable[..., None]
"""Keeps figures of a part, by name; they are in the session's file once the part ends."""

STATE_BYTES = 16
"""Bytes of a parameter that trains in mixed precision where all of it is on one device: weight and
gradient in bf16, master and two moments in fp32 (Rajbhandari et al. 2020, arXiv:1910.02054)."""

_PATTERN_ELEMENTS = 1 << 20
_DRAWING = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)
_SMALL = Workload(64, 2, 64, 16, batch_size=8, precision="bf16", cores=1, micro_batch=2)


class _Pattern(TorchDispatchMode):
    """Lets random numbers of fp32 tensors repeat the first of them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an op."""
        if func not in _DRAWING or args[0].numel() <= _PATTERN_ELEMENTS:
            return func(*args, **(kwargs or {}))
        pieces = args[0].view(-1).split(_PATTERN_ELEMENTS)
        func(pieces[0], *args[1:], **(kwargs or {}))
        for piece in pieces[1:]:
            piece.copy_(pieces[0][: piece.numel()])
        return args[0]


class PatternWorkload(Workload):
    """A workload whose weights repeat a short random pattern.

    To draw billions of normal numbers takes minutes, and zeros would cost a GPU less power.
    """

    def model(self) -> nn.Module:
        """Return the model on torch's default device, in fp32."""
        with _Pattern():
            return super().model()


@dataclass(frozen=True)
class Settings:
    """The device, whether models are tiny, and the memory that the largest model exceeds."""

    device: DeviceName = "cuda"
    small: bool = False
    beyond_gib: int = 40

    def runtime(self, **sections: Any) -> RuntimeSpec:
        """Return how a streamed arm runs: on Ray where it is installed."""
        kind: Literal["ray", "local"] = "local"
        if not self.small and find_spec("ray") is not None:
            kind = "ray"
        return RuntimeSpec(**{"kind": kind, "device": self.device, **sections})

    @property
    def repeats(self) -> int:
        """Trials of each arm."""
        return 1 if self.small else 3

    def gpt_124m(self) -> Workload:
        """Return GPT-2 small: 262,144 tokens a step, in micro-batches of 16,384."""
        return self._workload(Workload(768, 12, 50304, 1024, 256, "bf16", 1, micro_batch=16))

    def gpt_1_3b(self) -> Workload:
        """Return a GPT of 1.3 billion parameters: 262,144 tokens a step, micro-batches of 8,192."""
        return self._workload(PatternWorkload(2048, 24, 50304, 2048, 128, "bf16", 1, micro_batch=4))

    def gpt_beyond(self) -> tuple[Workload, int | None]:
        """Return a GPT whose training state exceeds the limit, and the limit in bytes.

        The limit is None where it is the whole device.
        """
        if self.device == "cpu":
            return beyond(replace(_SMALL, layers=1), 4 * MIB), None
        total = torch.cuda.get_device_properties(0).total_memory
        limit = MIB * 256 if self.small else min(total, self.beyond_gib * GIB)
        base = PatternWorkload(4096, 1, 32768, 2048, 256, "bf16", 1, micro_batch=2)
        if self.small:
            base = PatternWorkload(512, 1, 1024, 128, 8, "bf16", 1, micro_batch=2)
        workload = replace(beyond(base, limit), cores=_cores())
        return workload, limit if limit < total else None

    def _workload(self, full: Workload) -> Workload:
        return replace(_SMALL if self.small else full, cores=_cores())


def beyond(base: Workload, limit_bytes: int) -> Workload:
    """Return a workload with so many layers that the state of its training exceeds the limit."""
    fixed = base.num_parameters()
    per_layer = replace(base, layers=base.layers + 1).num_parameters() - fixed
    missing = limit_bytes // STATE_BYTES + 1 - fixed
    return replace(base, layers=base.layers + max(0, -(-missing // per_layer)))


def _cores() -> int:
    return len(os.sched_getaffinity(0))
