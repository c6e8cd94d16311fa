"""A message from one PE to another.

Published programs that reduce: when they start, and how long they take between additions.

Luczynski's early programs (sources in the history of pr0f3ss/SpMM_Cerebras) run on a line of PEs of
which the first is the root, on two colours. Their sources tell how many descriptors a PE loads
before an addition. All but the destination take time: two where both sources are loaded, one where
the destination is the first source (the matrix product of the same repository names one register
for both), none where the program loaded them ahead.

All return cycles from the start of the program to the root's last result.
"""

from __future__ import annotations

from timing.hardware.fabric import FabricSpec
from timing.kernels import collectives


def message(fabric: FabricSpec, hops: int, wavelets: int, turns: int = 0) -> float:
    """Cycles from a send to the receiver's task with the last wavelet.

    ``fixed + hops + turns + wavelets``, each at its own cost (K0090 to K0097, a WSE-3; the fixed
    part of a WSE-2 is not published and taken from there).
    """
    return (
        fabric.message_cycles
        + fabric.hop_cycles * hops
        + fabric.turn_cycles * turns
        + fabric.cycles_per_wavelet * wavelets
    )


def start_cycles(fabric: FabricSpec) -> int:
    """Before the first wavelet: program start and the first vector instruction's set-up."""
    return fabric.program_start_cycles + fabric.vector_setup_cycles


def two_phase_program(
    fabric: FabricSpec, pes: int, wavelets: int, group: int, *, descriptors_loaded: bool
) -> float:
    """reduce_2colors_dynamic and reduce_2colors_2phase, which loads its sources' descriptors ahead.

    Rows K0016 to K0028, and K0044 to K0052.
    """
    restart = restart_cycles(fabric, sources=0 if descriptors_loaded else 2)
    reduced = collectives.two_phase(fabric, pes, wavelets, group, restart=restart)
    return start_cycles(fabric) + reduced


def low_depth_program(fabric: FabricSpec, pes: int, wavelets: int) -> float:
    """reduce_2colors_low_depth, a binomial tree; rows K0030 to K0041."""
    reduced = collectives.binomial(
        fabric,
        pes,
        wavelets,
        restart=restart_cycles(fabric, sources=1),
        forward_restart=restart_cycles(fabric, sources=2),
    )
    return start_cycles(fabric) + reduced


def restart_cycles(fabric: FabricSpec, sources: int) -> float:
    """From the end of an addition to the next one, which loads descriptors of ``sources``.

    ``descriptor_load_cycles`` are those of two.
    """
    return fabric.vector_setup_cycles + fabric.descriptor_load_cycles * sources / 2
