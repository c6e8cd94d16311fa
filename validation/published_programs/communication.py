"""Cost of published programs that send a message or reduce along a line.

Luczynski's early programs (sources in the history of pr0f3ss/SpMM_Cerebras) reduce on a line of PEs
whose first PE is the root, on two colours. Their sources show how many descriptors a PE loads
before an addition. Each takes time, except for that of the destination: two where both sources are
loaded, one where the destination is the first source (the matrix product of the same repository
names one register for both), none where the program loaded them ahead.

The functions of reduces return cycles from the start of the program to the root's last result.
"""

from __future__ import annotations

from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels import collectives


def message(fabric: FabricSpec, hops: int, wavelets: int, turns: int = 0) -> float:
    """Return the cycles from a send to the receiver's task with the last wavelet.

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
    """Return the cycles before the first wavelet: program start and the first vector set-up."""
    return fabric.program_start_cycles + fabric.vector_setup_cycles


def two_phase_program(
    fabric: FabricSpec, pes: int, wavelets: int, group: int, *, descriptors_loaded: bool
) -> float:
    """Return the cycles of reduce_2colors_dynamic, or of reduce_2colors_2phase.

    The second loads the descriptors of its sources ahead (``descriptors_loaded``). Rows K0016 to
    K0028, and K0044 to K0052.
    """
    restart = restart_cycles(fabric, sources=0 if descriptors_loaded else 2)
    reduced = collectives.two_phase(fabric, pes, wavelets, group, restart=restart)
    return start_cycles(fabric) + reduced


def low_depth_program(fabric: FabricSpec, pes: int, wavelets: int) -> float:
    """Return the cycles of reduce_2colors_low_depth, a binomial tree; rows K0030 to K0041."""
    reduced = collectives.binomial(
        fabric,
        pes,
        wavelets,
        restart=restart_cycles(fabric, sources=1),
        forward_restart=restart_cycles(fabric, sources=2),
    )
    return start_cycles(fabric) + reduced


def restart_cycles(fabric: FabricSpec, sources: int) -> float:
    """Return the cycles from the end of an addition to the next.

    The next one loads descriptors of ``sources``; ``descriptor_load_cycles`` is the cost of two.
    """
    return fabric.vector_setup_cycles + fabric.descriptor_load_cycles * sources / 2
