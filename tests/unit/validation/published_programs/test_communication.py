"""Published programs that reduce or send, against measurements."""

from __future__ import annotations

import pytest

from validation.published_programs.communication import (
    low_depth_program,
    message,
    start_cycles,
    two_phase_program,
)
from waferstream.machine.hardware.fabric import WSE2, WSE3
from waferstream.machine.kernels import collectives


@pytest.mark.parametrize(("length", "cycles"), [(1, 3128), (64, 3191), (8192, 11319)])
def test_chain_matches_measurements(length: int, cycles: int) -> None:
    """K0001, K0007 and K0014, to the cycle."""
    assert start_cycles(WSE2) + collectives.chain(WSE2, 512, length) == cycles


def test_two_phase_program_matches_measurements() -> None:
    """K0016, K0026 and K0048: loading descriptors ahead saves 36 cycles."""
    assert two_phase_program(WSE2, 512, 1, 32, descriptors_loaded=False) == 819
    assert two_phase_program(WSE2, 512, 1024, 32, descriptors_loaded=False) == 2865
    assert two_phase_program(WSE2, 512, 4096, 32, descriptors_loaded=True) == 8973


def test_low_depth_program_is_near_measurements() -> None:
    """Within 3 % of K0030, K0037 and K0041, which were not used for any constant."""
    for length, cycles in ((1, 742), (128, 1646), (2048, 18801)):
        assert low_depth_program(WSE2, 512, length) == pytest.approx(cycles, rel=0.03)


def test_a_message_pays_for_hops_turns_and_wavelets() -> None:
    """The sum of K0093, K0094, K0095 and K0097."""
    assert message(WSE3, hops=10, wavelets=8, turns=1) == 33 + 20 + 20 + 9
