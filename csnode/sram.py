"""The SRAM ledger of a CS system: what is resident, by kind, and whether it fits."""

from __future__ import annotations

from typing import Literal

from wsc.core.errors import ApplianceResourceExhausted
from wsc.core.units import format_bytes

Kind = Literal["weights", "activations", "gradients"]


class SramLedger:
    """Tracks resident bytes by kind, their peaks, and refuses what exceeds the capacity."""

    def __init__(self, node: str, capacity_bytes: int) -> None:
        self.peak_bytes: dict[str, int] = {}
        self._node = node
        self._capacity_bytes = capacity_bytes
        self._resident_bytes: dict[str, int] = {}

    def change(self, kind: Kind, num_bytes: int) -> None:
        """Account for bytes that arrive (positive) or are forgotten (negative).

        Raises ApplianceResourceExhausted when everything resident no longer fits.
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
