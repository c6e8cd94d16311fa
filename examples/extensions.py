"""Classes of one's own: a topology, costs of kernels, a machine, and a micro-batch policy.

python examples/extensions.py

Each is named by its import path, in cluster.yaml (``swarmx: {topology: "extensions:Ring"}``)
or params.yaml (``csx.performance.micro_batch_size: extensions:Halves``), or as a value of a study.
Numbers of others than the published machine have no interval: nobody has measured them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swarmx.topology import Topology
from waferstream.core.program.micro_batches import OwnPolicy
from waferstream.core.program.segment import OpWork
from waferstream.machine.hardware.named import NamedMachine
from waferstream.machine.hardware.sourced import Sourced
from waferstream.machine.kernels import Cycles, Grid
from waferstream.machine.kernels.op_costs import KernelCosts, op_cycles
from waferstream.studies.grid import Grid as StudyGrid
from waferstream.studies.running import run_study

PARAMS = Path(__file__).parents[1] / "modelzoo/params/gpt2_small.yaml"


class Ring(Topology):
    """Systems in a ring with MemoryX: the farthest one is half of the ring away."""

    @property
    def depth(self) -> int:
        """Hops to the farthest system."""
        return (self.num_nodes + 1) // 2

    @property
    def num_switches(self) -> int:
        """One beside each system."""
        return self.num_nodes


class FusedSoftmax(KernelCosts):
    """Softmax and elementwise ops that pass the data in half of the cycles."""

    kinds = frozenset({"softmax", "elementwise"})

    def cycles(self, grid: Grid, work: OpWork, dtype: str, density: float) -> Cycles:
        """Return half of the closed form."""
        return op_cycles(grid, work, dtype, density) * 0.5


WAREHOUSE = NamedMachine(
    "warehouse",
    "A warehouse of CS-3",
    "CS-3",
    {
        "systems": Sourced(1024, "assumed", "what the hall has room for"),
        "swarmx.link_bandwidth_bytes_per_s": Sourced(300_000_000_000, "assumed", "800 GbE"),
    },
)
"""A cluster that nobody has built."""


class Halves(OwnPolicy):
    """Two micro-batches for each system, so that one streams while the other computes."""

    def size(self, batch_size: int, num_csx: int, largest: int | None) -> int:
        """Return half of the share of a system, as far as the wafer holds it."""
        half = max(1, batch_size // (2 * num_csx))
        return half if largest is None else min(half, largest)


EXTENSIONS: dict[str, tuple[str, Any]] = {
    "as published": ("machine.swarmx.topology", "tree"),
    "in a ring": ("machine.swarmx.topology", f"{__name__}:Ring"),
    "fused softmax": ("machine.system.kernel_costs", f"{__name__}:FusedSoftmax"),
    "warehouse": ("machine.name", f"{__name__}:WAREHOUSE"),
    "two streams": ("micro_batch_size", f"{__name__}:Halves"),
}


def step_times(params: Path = PARAMS, num_csx: int = 16) -> dict[str, float]:
    """Return the seconds of a step with each extension."""
    found = {}
    for name, (key, value) in EXTENSIONS.items():
        (row,) = run_study(params, StudyGrid.of({key: [value], "num_csx": [num_csx]})).records
        found[name] = float(str(row["step_s"]))
    return found


if __name__ == "__main__":
    for extension, step_s in step_times().items():
        print(f"{extension:14} {1e3 * step_s:8.3f} ms")
