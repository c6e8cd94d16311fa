"""Published programs: what their sources make a PE do, beyond the model of the collective.

Luczynski's early reduce programs (sources in the history of pr0f3ss/SpMM_Cerebras) run on a line of
PEs of which the first is the root. A PE adds an incoming stream to its own values, in memory or
passing the sums on; a PE with more than one stream must finish one addition before it starts the
next, and starting takes the set-up and the load of descriptors. In place, destination and first
source are one descriptor, so one less is loaded.

All return cycles from the start of the program to the root's last result.
"""

from __future__ import annotations

from math import ceil

from wsc.timing.hardware.fabric import FabricSpec
from wsc.timing.kernels.collectives import chain, depth_cycles


def start_cycles(fabric: FabricSpec) -> int:
    """Before the first wavelet: program start and the first vector instruction's set-up."""
    return fabric.program_start_cycles + fabric.vector_setup_cycles


def chain_program(fabric: FabricSpec, pes: int, wavelets: int) -> float:
    """reduce_2colors_static: each PE passes on the sum of what comes in and its own values."""
    return start_cycles(fabric) + chain(fabric, pes, wavelets)


def two_phase_program(
    fabric: FabricSpec, pes: int, wavelets: int, group: int, *, descriptors_loaded: bool
) -> float:
    """reduce_2colors_dynamic and reduce_2colors_2phase: chains in groups, then over their roots.

    The last group's root passes its sum on at once. Every other root first adds its group's sum in
    memory, then starts a second addition, which passes on. ``descriptors_loaded``: the second
    program loads the sources' descriptors once, ahead. One group is a chain.
    """
    if group >= pes:
        return chain_program(fabric, pes, wavelets)
    restart = fabric.vector_setup_cycles + fabric.descriptor_load_cycles * (not descriptors_loaded)
    in_group = chain(fabric, group, wavelets)
    between_roots = group * fabric.hop_cycles + depth_cycles(fabric)
    over_roots = between_roots * (ceil(pes / group) - 2) + fabric.cycles_per_wavelet * wavelets
    return start_cycles(fabric) + in_group + restart + over_roots


def low_depth_program(fabric: FabricSpec, pes: int, wavelets: int) -> float:
    """reduce_2colors_low_depth: a PE adds subtrees of 1, 2, 4, ... PEs, nearest first.

    All additions of a PE but its last are in place; a PE other than the root passes on its last.
    The root's subtrees are the powers of two that make up P - 1.
    """
    stream = fabric.cycles_per_wavelet * wavelets
    onward = stream + fabric.vector_setup_cycles + fabric.descriptor_load_cycles
    in_place = onward - fabric.descriptor_load_cycles / 2
    leaves = [0.0]  # when a subtree of 2^k PEs sends its first wavelet
    added = float("-inf")  # start of the latest addition in place inside a subtree
    for k in range((pes - 1).bit_length() - 1):
        arrives = leaves[k] + 2**k * fabric.hop_cycles + depth_cycles(fabric)
        leaves.append(max(added + onward, arrives))
        added = max(added + in_place, arrives)
    root, distance = 0.0 - stream, 1
    for k, first in enumerate(leaves):
        if (pes - 1) >> k & 1:
            arrives = first + distance * fabric.hop_cycles + depth_cycles(fabric)
            root = max(root + in_place, arrives) if distance > 1 else arrives
            distance += 2**k
    return start_cycles(fabric) + root + stream
