"""Constants of published programs: what their loops cost, on top of what the PE and fabric do."""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt

from timing.hardware.sourced import sourced
from wsc.core.config import Config


class ProgramSpec(Config):
    """Programs of the SDK's examples and of pr0f3ss/SpMM_Cerebras."""

    summa_loop_cycles: PositiveInt = sourced(
        43, "published", "K0133: around each vector multiply-add of SUMMA"
    )
    summa_step_cycles: PositiveInt = sourced(120, "published", "K0134: before each step of SUMMA")
    broadcast_words_per_cycle: PositiveFloat = sourced(
        0.975, "published", "timing model, 2c: SUMMA's broadcasts, behind its arithmetic"
    )
    host_in_words_per_cycle: PositiveFloat = sourced(
        0.868, "published", "K0136: host to 4 x 4 PEs over one channel, simulator"
    )
    host_out_words_per_cycle: PositiveFloat = sourced(
        0.298, "published", "K0137: 4 x 4 PEs to host over one channel, simulator"
    )
    strided_fma_cycles: PositiveFloat = sourced(
        2.179,
        "fitted",
        "K0138 and K0141: per element whose result lies in one bank, read and written in turn, and "
        "in one case of eight in the bank of the other operand too: 2 1/8 expected",
    )
    map_column_cycles: PositiveFloat = sourced(
        1.075, "fitted", "K0123, K0127 and K0131: per column of a matrix-vector product"
    )
    map_start_cycles: PositiveFloat = sourced(
        37.3, "fitted", "K0123, K0127 and K0131: per matrix-vector product"
    )


PROGRAMS = ProgramSpec()
