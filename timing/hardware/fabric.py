"""The wafer as a grid of processing elements (PEs): network, memory and vector unit of each.

Numbers are in cycles, so that they hold at any clock; kernels are compared in cycles.
``FabricSpec`` holds a WSE-2, ``Wse3Fabric`` a WSE-3 as measured on silicon, ``Wse3Simulator`` the
same as the vendor's simulator shows it, which is optimistic about memory (K0078 to K0085).
"""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from timing.hardware.sourced import sourced
from wsc.core.config import Config


class FabricSpec(Config):
    """A WSE-2.

    What is "kernels only" moves the fabric simulator and published programs, but no training step.
    """

    columns: PositiveInt = sourced(750, "published", "usable grid; SDK examples, Jacquelin et al.")
    rows: PositiveInt = sourced(994, "published", "usable grid; SDK examples, Jacquelin et al.")

    # Network
    hop_cycles: PositiveInt = sourced(1, "published", "Luczynski et al., HPDC'24")
    turn_cycles: NonNegativeInt = sourced(
        0, "published", "Luczynski et al., HPDC'24: none stated; kernels only"
    )
    ramp_cycles: PositiveInt = sourced(
        2, "published", "T_R of Luczynski et al., HPDC'24: between router and PE, each way"
    )
    wavelet_bytes: PositiveInt = sourced(4, "published", "32 bit per cycle and direction; SDK")
    cycles_per_wavelet: PositiveFloat = sourced(1.0, "published", "Luczynski et al., HPDC'24", ge=1)
    colours: PositiveInt = sourced(
        24, "published", "routable colours; SDK white paper; kernels only"
    )
    switch_positions: PositiveInt = sourced(
        4, "published", "per colour; SDK white paper; kernels only"
    )
    queue_wavelets: PositiveInt = sourced(
        4, "assumed", "slots per colour and input of a router beside those under way; not published"
    )

    # Memory of a PE
    sram_bytes_per_pe: PositiveInt = sourced(48 * 1024, "published", "zhang; white paper")
    sram_banks: PositiveInt = sourced(8, "published", "8 banks of 6 KB, 32 bit wide; zhang")
    sram_reserved_bytes_per_pe: NonNegativeInt = sourced(
        4176, "published", "code and runtime of a PE on a WSE-3; FABRICA"
    )
    bank_conflict_factor: PositiveFloat = sourced(
        1.94,
        "published",
        "K0089: operands in one bank, silicon of a CS-3; up to 2.86; kernels only",
        ge=1,
    )

    # Vector unit of a PE: elements per cycle, and cycles before the first
    fma_16bit_per_cycle: PositiveFloat = sourced(
        4.0, "published", "four fp16 multiply-adds per cycle; hc 2022"
    )
    fma_32bit_per_cycle: PositiveFloat = sourced(
        1.0, "published", "K0123 to K0131 and Jacquelin et al.: one fp32 multiply-add per cycle"
    )
    copy_16bit_per_cycle: PositiveFloat = sourced(
        4.0, "derived", "8 bytes written per cycle; Jacquelin et al., section IV.A"
    )
    copy_32bit_per_cycle: PositiveFloat = sourced(
        2.0, "derived", "8 bytes written per cycle; Jacquelin et al., section IV.A"
    )
    vector_setup_cycles: NonNegativeInt = sourced(
        16, "published", "K0078 to K0085: 15 to 17 on a WSE-3, taken for a WSE-2 as well"
    )
    micro_threads: PositiveInt = sourced(
        8, "published", "threads of a PE; zhang; FABRICA; kernels only"
    )
    descriptor_load_cycles: NonNegativeInt = sourced(
        36,
        "fitted",
        "K0016 and K0026: 52 cycles from one vector op to the next where it loads its descriptors, "
        "less the 16 of vector_setup_cycles; 0 where they were loaded ahead (K0048); kernels only",
    )
    program_start_cycles: NonNegativeInt = sourced(
        45,
        "fitted",
        "K0001, K0007, K0014: 61 before the first wavelet, 16 of them vector set-up; kernels only",
    )
    triggered_cycles: NonNegativeInt = sourced(
        1, "derived", "K0123 and K0127: 1.1 cycles per column beside one per element; timing model"
    )
    serial_add_cycles: PositiveInt = sourced(
        2, "published", "an addition that waits for the one before; FABRICA, K0106; kernels only"
    )
    taken_branch_cycles: NonNegativeInt = sourced(6, "published", "FABRICA, K0112; kernels only")
    untaken_branch_cycles: NonNegativeInt = sourced(3, "published", "FABRICA, K0112; kernels only")
    descriptor_use_cycles: NonNegativeInt = sourced(
        4,
        "published",
        "from the load of a descriptor register to the op that uses it; K0113; kernels only",
    )
    message_cycles: NonNegativeInt = sourced(
        33,
        "published",
        "K0097: from one PE to another besides hops, turns and wavelets; kernels only",
    )
    unary_cycles: PositiveInt = sourced(
        16, "assumed", "per element of exp, rsqrt and the like: a polynomial of about eight fma"
    )

    @property
    def num_pes(self) -> int:
        """PEs of the usable grid."""
        return self.columns * self.rows


class Wse3Fabric(FabricSpec):
    """A WSE-3 as measured on silicon."""

    columns: PositiveInt = sourced(762, "published", "usable grid; SDK examples")
    rows: PositiveInt = sourced(1176, "published", "usable grid; SDK examples")
    hop_cycles: PositiveInt = sourced(2, "published", "K0093, silicon; a WSE-2 has 1")
    turn_cycles: NonNegativeInt = sourced(20, "published", "K0095, silicon; kernels only")
    cycles_per_wavelet: PositiveFloat = sourced(1.125, "published", "K0094, silicon", ge=1)
    fma_16bit_per_cycle: PositiveFloat = sourced(2.92, "published", "K0083, silicon")
    fma_32bit_per_cycle: PositiveFloat = sourced(0.5, "published", "K0085, silicon")
    copy_16bit_per_cycle: PositiveFloat = sourced(4.82, "published", "K0079, silicon")
    copy_32bit_per_cycle: PositiveFloat = sourced(2.44, "published", "K0081, silicon")


class Wse3Simulator(Wse3Fabric):
    """A WSE-3 as the vendor's simulator shows it."""

    turn_cycles: NonNegativeInt = sourced(33, "published", "K0092, simulator; kernels only")
    cycles_per_wavelet: PositiveFloat = sourced(1.0, "published", "K0091, simulator", ge=1)
    bank_conflict_factor: PositiveFloat = sourced(
        1.0, "published", "K0089: not modelled by the simulator; kernels only", ge=1
    )
    fma_16bit_per_cycle: PositiveFloat = sourced(4.0, "published", "K0082, simulator")
    copy_16bit_per_cycle: PositiveFloat = sourced(8.0, "published", "K0078, simulator")
    copy_32bit_per_cycle: PositiveFloat = sourced(4.0, "published", "K0080, simulator")


WSE2 = FabricSpec()
WSE3 = Wse3Fabric()
WSE3_SIMULATOR = Wse3Simulator()
