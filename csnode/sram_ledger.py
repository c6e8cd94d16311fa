"""What a system holds in SRAM while it runs, against its capacity."""

from __future__ import annotations

from typing import Literal

from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.units import format_bytes

Kind = Literal["weights", "activations", "gradients"]


class SramLedger:
    """The bytes resident in a system's SRAM, by kind, their peaks, and the capacity."""

    def __init__(self, node: str, capacity_bytes: int) -> None:
        self.peak_bytes: dict[str, int] = {}
        self._node = node
        self._capacity_bytes = capacity_bytes
        self._resident_bytes: dict[str, int] = {}

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
