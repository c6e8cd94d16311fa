"""The formulas of HPDC'24 against the closed forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.published_programs import hpdc
from waferstream.machine.hardware.fabric import WSE2, WSE3
from waferstream.machine.kernels import collectives

pes = st.integers(1, 600)


wavelets = st.integers(1, 5000)


def test_hpdc_formulas_agree_with_closed_forms() -> None:
    """Formulas of HPDC'24 for 512 PEs and 100 wavelets, T_R = 2."""
    assert collectives.chain(WSE2, 512, 100) == 100 + 6 * 511
    assert collectives.star(WSE2, 512, 100) == 100 * 511 + 5 + 1
    assert collectives.broadcast(WSE2, 512, 100) == 100 + 512 + 4
    assert collectives.broadcast_2d(WSE2, 8, 16, 100) == 100 + 8 + 16 - 2 + 5
    assert collectives.snake_reduce(WSE2, 8, 16, 100) == collectives.chain(WSE2, 128, 100)
    assert hpdc.two_phase(WSE2, 512, 100, 32) == 200 + 741
    assert hpdc.tree(WSE3, 6, 1) == pytest.approx(1.125 * 3 * 6 / 2 / 5 + 2 * 5 + 5 * 3)
    assert hpdc.tree(WSE2, 6, 100) == 3 * 100 + 5 * 3


@given(pes=st.sampled_from([64, 128, 256, 512]), length=wavelets)
def test_hpdc_two_phase_is_near_the_closed_form(pes: int, length: int) -> None:
    """The restart of a leader between its two streams is less than 4 % of the paper's formula."""
    published = hpdc.two_phase(WSE2, pes, length)
    assert collectives.two_phase(WSE2, pes, length) == pytest.approx(published, rel=0.04)


@given(pes=st.sampled_from([2, 4, 16, 128, 512]), length=wavelets)
def test_hpdc_tree_bounds_the_closed_form(pes: int, length: int) -> None:
    """The paper's formula counts no time between two additions of a PE."""
    assert collectives.binomial(WSE2, pes, length) >= hpdc.tree(WSE2, pes, length) - 1e-6
