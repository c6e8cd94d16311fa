"""The wafer as a grid of processing elements (PEs): network, memory and vector unit of each.

Numbers are in cycles, so that they hold at any clock; kernels are compared in cycles. Presets:
``WSE2``; ``WSE3`` as measured on silicon; ``WSE3_SIMULATOR``, the same wafer as the vendor's
simulator shows it, which is optimistic about memory (K0078 to K0085).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from waferstream.core.config import Config
from waferstream.machine.hardware.sourced import Preset, Sourced, preset


class FabricSpec(Config):
    """The grid of a wafer. It has no default of any product."""

    columns: PositiveInt
    """PEs in a row of the usable grid."""
    rows: PositiveInt
    """PEs in a column of the usable grid."""

    # Network
    hop_cycles: PositiveInt
    """Cycles from router to router."""
    turn_cycles: NonNegativeInt
    """Cycles for each change of direction."""
    ramp_cycles: PositiveInt
    """Cycles between router and PE, each way."""
    wavelet_bytes: PositiveInt
    """Size of one message of the network."""
    cycles_per_wavelet: Annotated[PositiveFloat, Field(ge=1)]
    """Cycles of a link for one wavelet, in each direction."""
    colours: PositiveInt
    """Colours that can be routed."""
    switch_positions: PositiveInt
    """Switch positions of a router for each colour."""
    queue_wavelets: PositiveInt
    """Slots per colour and input of a router."""

    # Memory of a PE
    sram_bytes_per_pe: PositiveInt
    sram_banks: PositiveInt
    sram_reserved_bytes_per_pe: NonNegativeInt
    """SRAM of code and runtime."""
    bank_conflict_factor: Annotated[PositiveFloat, Field(ge=1)]
    """Time of an op whose operands are in one bank, over that of others."""

    # Vector unit of a PE: elements per cycle, and cycles before the first
    fma_16bit_per_cycle: PositiveFloat
    fma_32bit_per_cycle: PositiveFloat
    copy_16bit_per_cycle: PositiveFloat
    copy_32bit_per_cycle: PositiveFloat
    vector_setup_cycles: NonNegativeInt
    """Cycles before the first element of a vector op."""
    micro_threads: PositiveInt
    descriptor_load_cycles: NonNegativeInt
    """Further cycles of a vector op that loads its descriptors."""
    program_start_cycles: NonNegativeInt
    """Cycles before the first wavelet."""
    triggered_cycles: NonNegativeInt
    """Cycles for each wavelet of an op that wavelets trigger."""
    serial_add_cycles: PositiveInt
    """Cycles of an addition that waits for the one before."""
    taken_branch_cycles: NonNegativeInt
    untaken_branch_cycles: NonNegativeInt
    descriptor_use_cycles: NonNegativeInt
    """Cycles from the load of a descriptor to the op that uses it."""
    message_cycles: NonNegativeInt
    """Cycles from PE to PE besides hops, turns and wavelets."""
    unary_cycles: PositiveInt
    """Cycles of exp, rsqrt and the like for each element."""

    @property
    def num_pes(self) -> int:
        """PEs of the usable grid."""
        return self.columns * self.rows


# A source that ends with "kernels only" says that the number moves the fabric simulator and
# published programs, but no training step.
_BOTH_WAFERS: Mapping[str, Any] = {
    "ramp_cycles": Sourced(
        2, "published", "T_R of Luczynski et al., HPDC'24: between router and PE, each way"
    ),
    "wavelet_bytes": Sourced(4, "published", "32 bit per cycle and direction; SDK"),
    "colours": Sourced(24, "published", "routable colours; SDK white paper; kernels only"),
    "switch_positions": Sourced(4, "published", "per colour; SDK white paper; kernels only"),
    "queue_wavelets": Sourced(
        4, "assumed", "slots per colour and input of a router beside those under way; not published"
    ),
    "sram_bytes_per_pe": Sourced(48 * 1024, "published", "zhang; white paper"),
    "sram_banks": Sourced(8, "published", "8 banks of 6 KB, 32 bit wide; zhang"),
    "sram_reserved_bytes_per_pe": Sourced(
        4176, "published", "code and runtime of a PE on a WSE-3; FABRICA"
    ),
    "bank_conflict_factor": Sourced(
        1.94,
        "published",
        "K0089: operands in one bank, silicon of a CS-3; up to 2.86; kernels only",
    ),
    "vector_setup_cycles": Sourced(
        16, "published", "K0078 to K0085: 15 to 17 on a WSE-3, taken for a WSE-2 as well"
    ),
    "micro_threads": Sourced(8, "published", "threads of a PE; zhang; FABRICA; kernels only"),
    "descriptor_load_cycles": Sourced(
        36,
        "derived",
        "K0016 and K0026: 52 cycles from one vector op to the next where it loads its descriptors, "
        "less the 16 of vector_setup_cycles; 0 where they were loaded ahead (K0048); kernels only",
    ),
    "program_start_cycles": Sourced(
        45,
        "derived",
        "K0001, K0007, K0014: 61 before the first wavelet, 16 of them vector set-up; kernels only",
    ),
    "triggered_cycles": Sourced(
        1, "derived", "K0123 and K0127: 1.1 cycles per column beside one per element; timing model"
    ),
    "serial_add_cycles": Sourced(
        2, "published", "an addition that waits for the one before; FABRICA, K0106; kernels only"
    ),
    "taken_branch_cycles": Sourced(6, "published", "FABRICA, K0112; kernels only"),
    "untaken_branch_cycles": Sourced(3, "published", "FABRICA, K0112; kernels only"),
    "descriptor_use_cycles": Sourced(
        4,
        "published",
        "from the load of a descriptor register to the op that uses it; K0113; kernels only",
    ),
    "message_cycles": Sourced(
        33,
        "published",
        "K0097: from one PE to another besides hops, turns and wavelets; kernels only",
    ),
    "unary_cycles": Sourced(
        16, "assumed", "per element of exp, rsqrt and the like: a polynomial of about eight fma"
    ),
}
"""Numbers measured or published for one generation and taken for both."""

_WSE2: Preset[FabricSpec] = preset(
    FabricSpec,
    "A WSE-2",
    **_BOTH_WAFERS,
    columns=Sourced(750, "published", "usable grid; SDK examples, Jacquelin et al."),
    rows=Sourced(994, "published", "usable grid; SDK examples, Jacquelin et al."),
    hop_cycles=Sourced(1, "published", "Luczynski et al., HPDC'24"),
    turn_cycles=Sourced(0, "published", "Luczynski et al., HPDC'24: none stated; kernels only"),
    cycles_per_wavelet=Sourced(1.0, "published", "Luczynski et al., HPDC'24"),
    fma_16bit_per_cycle=Sourced(4.0, "published", "four fp16 multiply-adds per cycle; hc 2022"),
    fma_32bit_per_cycle=Sourced(
        1.0, "published", "K0123 to K0131 and Jacquelin et al.: one fp32 multiply-add per cycle"
    ),
    copy_16bit_per_cycle=Sourced(
        4.0, "derived", "8 bytes written per cycle; Jacquelin et al., section IV.A"
    ),
    copy_32bit_per_cycle=Sourced(
        2.0, "derived", "8 bytes written per cycle; Jacquelin et al., section IV.A"
    ),
)
_WSE3: Preset[FabricSpec] = preset(
    FabricSpec,
    "A WSE-3 as measured on silicon",
    **_BOTH_WAFERS,
    columns=Sourced(762, "published", "usable grid; SDK examples"),
    rows=Sourced(1176, "published", "usable grid; SDK examples"),
    hop_cycles=Sourced(2, "published", "K0093, silicon; a WSE-2 has 1"),
    turn_cycles=Sourced(20, "published", "K0095, silicon; kernels only"),
    cycles_per_wavelet=Sourced(1.125, "published", "K0094, silicon"),
    fma_16bit_per_cycle=Sourced(2.92, "published", "K0083, silicon"),
    fma_32bit_per_cycle=Sourced(0.5, "published", "K0085, silicon"),
    copy_16bit_per_cycle=Sourced(4.82, "published", "K0079, silicon"),
    copy_32bit_per_cycle=Sourced(2.44, "published", "K0081, silicon"),
)
_WSE3_SIMULATOR: Preset[FabricSpec] = preset(
    FabricSpec,
    "A WSE-3 as the vendor's simulator shows it",
    variant_of=_WSE3,
    turn_cycles=Sourced(33, "published", "K0092, simulator; kernels only"),
    cycles_per_wavelet=Sourced(1.0, "published", "K0091, simulator"),
    bank_conflict_factor=Sourced(
        1.0, "published", "K0089: not modelled by the simulator; kernels only"
    ),
    fma_16bit_per_cycle=Sourced(4.0, "published", "K0082, simulator"),
    copy_16bit_per_cycle=Sourced(8.0, "published", "K0078, simulator"),
    copy_32bit_per_cycle=Sourced(4.0, "published", "K0080, simulator"),
)

PRESETS: Mapping[str, Preset[FabricSpec]] = {
    "WSE2": _WSE2,
    "WSE3": _WSE3,
    "WSE3_SIMULATOR": _WSE3_SIMULATOR,
}

WSE2 = _WSE2.spec
WSE3 = _WSE3.spec
WSE3_SIMULATOR = _WSE3_SIMULATOR.spec
