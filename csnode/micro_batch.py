"""The activations of one micro-batch on a CS node, between the segments of a step, and their SRAM.

The ledger counts what a system holds in SRAM while it runs, against its capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from csnode.stash import Packed, pack, unpack
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.messages.payload import Arena, Payload, Slab
from waferstream.core.program.segment import Segment
from waferstream.core.roles.role import Value
from waferstream.core.units import format_bytes

Kernel = Callable[..., tuple[Any, ...]]

Kind = Literal["weights", "activations", "gradients", "leases"]


@dataclass
class MicroBatch:
    """The activations of one micro-batch between segments.

    ``values`` holds the batch inputs and every stashed value by name, ``gradients`` those of the
    segment that ran last, ``results`` the step's results by position: tensors at the positions
    ``tensors``, numbers at all others, once they are read. ``weights`` are its weights in results
    that are means, by position; ``has_labels`` is False where it has no label of the loss, and its
    gradients are 0.
    """

    index: int
    values: dict[str, Any]
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    results: dict[int, Value] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    has_labels: bool = True
    tensors: frozenset[int] = frozenset()
    is_finite: bool = True  # as far as it was examined
    away: dict[int, Packed] = field(default_factory=dict)  # by trip
    _numbers: dict[int, Any] = field(default_factory=dict)  # by position, not read yet

    def run(self, segment: Segment, kernel: Kernel, weights: Sequence[torch.Tensor]) -> None:
        """Run one segment and keep what later segments read."""
        inputs = [self.values[name] for name in segment.inputs]
        returned = kernel(*weights, *inputs)
        num_outputs, num_gradients = len(segment.outputs), len(segment.gradients)
        self.values.update(zip(segment.outputs, returned[:num_outputs], strict=True))
        gradients = returned[num_outputs : num_outputs + num_gradients]
        if not self.has_labels:  # a mean over no labels is not a number
            gradients = tuple(map(torch.zeros_like, gradients))
        self.gradients = dict(zip(segment.gradients, gradients, strict=True))
        results = returned[num_outputs + num_gradients :]
        for (place, _), value in zip(segment.results, results, strict=True):
            if place in self.tensors:
                # A copy on the processor: it may be a view of something larger.
                self.results[place] = value.to("cpu", copy=True)
            else:
                self._numbers[place] = value

    def read_numbers(self) -> None:
        """Read results that are numbers; this waits for a device that still computes them."""
        for place, value in self._numbers.items():
            weight = self.weights.get(place, 1.0)
            self.results[place] = float(value) * weight if weight else 0.0
        self._numbers.clear()

    def take_gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients of the segment that ran last, and keep them no more."""
        taken, self.gradients = self.gradients, {}
        return taken

    def drop(self, names: Sequence[str]) -> None:
        """Forget stashed values."""
        for name in names:
            del self.values[name]

    def leave(self, trip: int, names: Sequence[str], arena: Arena) -> Slab:
        """Forget the values of a piece, those that are there by now; return their memory."""
        there = {name: self.values.pop(name) for name in names if name in self.values}
        slab, self.away[trip] = pack(there, arena)
        return slab

    def come_back(self, trip: int, payload: Payload) -> None:
        """Take the values back that have left on a trip."""
        self.values.update(unpack(self.away.pop(trip), payload))

    @property
    def num_bytes(self) -> int:
        """Bytes of all values that are held; views of one tensor count once."""
        tensors = (value for value in self.values.values() if isinstance(value, torch.Tensor))
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return sum(storages.values())


class SramLedger:
    """The bytes resident in a system's SRAM, by kind, their peaks, and the capacity."""

    def __init__(self, node: str, capacity_bytes: int) -> None:
        self.peak_bytes: dict[str, int] = {}
        self._node = node
        self._capacity_bytes = capacity_bytes
        self._resident_bytes: dict[str, int] = {}
        self._leases: dict[str, int] = {}

    def lease(self, session: str, num_bytes: int) -> None:
        """Let a session keep so many bytes, whatever jobs come and go; 0 ends its lease.

        Raises:
            ApplianceResourceExhausted: They do not fit; the session keeps what it had.
        """
        more = num_bytes - self._leases.get(session, 0)
        try:
            self.change("leases", more)
        except ApplianceResourceExhausted:
            self.change("leases", -more)
            raise
        self._leases[session] = num_bytes
        if not num_bytes:
            del self._leases[session]

    def change(self, kind: Kind, num_bytes: int) -> None:
        """Add bytes that arrive, or subtract bytes that are forgotten.

        Raises:
            ApplianceResourceExhausted: The resident bytes exceed the capacity.
        """
        self._resident_bytes[kind] = self._resident_bytes.get(kind, 0) + num_bytes
        total = sum(self._resident_bytes.values())
        for name, resident in ((kind, self._resident_bytes[kind]), ("total", total)):
            self.peak_bytes[name] = max(self.peak_bytes.get(name, 0), resident)
        if total > self._capacity_bytes:
            parts = ", ".join(f"{k} {format_bytes(v)}" for k, v in self._resident_bytes.items())
            raise ApplianceResourceExhausted(
                f"{self._node} needs {format_bytes(total)} of SRAM",
                code="sram-ledger-exceeded",
                value=parts,
                rule=f"a system has {format_bytes(self._capacity_bytes)}",
                remedy="choose a smaller csx.performance.micro_batch_size",
            )

    def hold(self, kind: Kind, num_bytes: int) -> None:
        """Let the bytes of a kind be so many.

        Of activations they are those of one micro-batch: the emulated wafer takes one at a time,
        and the others are the host's.
        """
        self.change(kind, num_bytes - self._resident_bytes.get(kind, 0))
