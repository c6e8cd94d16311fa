"""What the instructions of a PE cost in the programs for regions, in cycles.

Two numbers are fitted, on the three calibration rows of prefill and decode; all others come from
measurements of single PEs and of reductions. The one of prefill is small: with the 1.1 cycles per
column of K0123 to K0131 in its place, prefill is 2 to 6 % too fast.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat

from timing.hardware.sourced import sourced
from wsc.core.config import Config


class PeCosts(Config):
    """Cycles of one PE, beside the network and the vector unit that its FabricSpec describes."""

    mac_cycles: PositiveFloat = sourced(
        0.52, "published", "K0108: fp16 multiply-add of a matrix-vector product in one tile"
    )
    column_cycles: NonNegativeFloat = sourced(
        1.549, "fitted", "T0138 T0140; issue of one mapped column, 1.1 in K0123 to K0131 (fp32)"
    )
    map_setup_cycles: NonNegativeFloat = sourced(
        35, "derived", "intercept of K0123 to K0131, matrix-vector products of one tile"
    )
    loop_cycles: NonNegativeFloat = sourced(
        43, "published", "K0133: one turn of a loop around vector instructions"
    )
    step_cycles: NonNegativeFloat = sourced(
        120, "published", "K0134: start of one step of a distributed matrix product"
    )
    reduce_setup_cycles: NonNegativeFloat = sourced(
        76,
        "derived",
        "two-phase reduction of 512 PEs beyond its formula, 61 + 15; Luczynski et al.",
    )
    function_cycles: NonNegativeFloat = sourced(
        108.8, "fitted", "T0174; one division, square root or exponential, done in software"
    )


PE_COSTS = PeCosts()
