"""A kernel that ran on the simulator of the fabric, as reports show it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csnode.engine.calls import KernelCall
from csnode.fabric.simulator.activity import Work
from csnode.fabric.simulator.execution import Outcome

WORK_NAMES = {
    Work.COMPUTE: "multiply-add",
    Work.RECEIVE: "receive",
    Work.SEND: "send",
    Work.PASS_ON: "add and pass on",
}
"""Names of what a PE does; vector ops in memory count as multiply-adds."""

_SHOWN_FIRST = (Work.SEND, Work.RECEIVE, Work.PASS_ON, Work.COMPUTE)
"""Of two kinds of work in one cycle of a PE (two threads) the later one is shown."""

IDLE = 0
"""State of a PE that does nothing; work k has state k + 1."""


@dataclass(frozen=True)
class KernelTrace:
    """One kernel of a layer on a region, with all that its PEs did."""

    model: str
    layer: str
    phase: str
    op: str
    whole: KernelCall
    """The kernel as the layer has it."""
    call: KernelCall
    """The kernel that was simulated, cut to the region."""
    rows: int
    columns: int
    closed_form: float
    """Cycles of the simulated kernel by its closed form."""
    outcome: Outcome

    @property
    def cycles(self) -> int:
        """Cycles of the simulated kernel."""
        return self.outcome.cycles

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the PEs that took part, the edge for weights included."""
        rows, columns = self.outcome.busy_cycles.shape
        return rows, columns

    @property
    def has_edge(self) -> bool:
        """Whether row 0 is the edge at which weights enter."""
        return self.call.kernel == "streamed_product"

    @cached_property
    def states(self) -> NDArray[np.uint8]:
        """State of every PE in every cycle: uint8 [PEs, cycles]."""
        rows, columns = self.shape
        states = np.zeros((rows * columns, self.cycles), dtype=np.uint8)
        for kind in _SHOWN_FIRST:
            for pe, start, cycles, _ in self._work_of(kind):
                states[pe, start : start + cycles] = kind + 1
        return states

    @property
    def busy_share(self) -> float:
        """Mean share of the cycles in which a PE works."""
        return float((self.states != IDLE).mean())

    def data(self) -> dict[str, Any]:
        """Return the trace as plain data: PE, first cycle, cycles, kind of each work, and hops."""
        assert self.outcome.history is not None, "the fabric keeps its history"
        rows, columns = self.shape
        return {
            "rows": rows,
            "columns": columns,
            "edge": self.has_edge,
            "cycles": self.cycles,
            "kinds": list(WORK_NAMES.values()),
            "work": [value for kind in Work for each in self._joined(kind) for value in each],
            "hops": self.outcome.history.hops.ravel().tolist(),
        }

    def _work_of(self, kind: Work) -> NDArray[np.int64]:
        assert self.outcome.history is not None, "the fabric keeps its history"
        work = self.outcome.history.work
        return np.asarray(work[work[:, 3] == kind], dtype=np.int64)

    def _joined(self, kind: Work) -> list[list[int]]:
        """Return the work of one kind, cycles of a PE that follow each other joined."""
        work = self._work_of(kind)
        joined: list[list[int]] = []
        for pe, start, cycles, number in work[np.lexsort((work[:, 1], work[:, 0]))].tolist():
            last = joined[-1] if joined else None
            if last is not None and last[0] == pe and last[1] + last[2] == start:
                last[2] += cycles
            else:
                joined.append([pe, start, cycles, number])
        return joined
