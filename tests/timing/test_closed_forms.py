"""Closed forms of kernels against the simulated fabric: a part of ``validation.closed_forms``."""

import pytest

from csnode.fabric.dtypes import Dtype
from tests.support.nightly import nightly
from validation.closed_forms.__main__ import SWEEPS, sweep
from validation.closed_forms.kernel_cases import Case

BOUND = 0.05
MASKED = {"GEMM, sparse", "weight gradient, masked"}
LINES = {"chain", "tree", "two-phase", "broadcast", "all-reduce", "2D broadcast"}


@pytest.mark.parametrize(
    "kernel", [*sorted(SWEEPS.keys() - LINES - MASKED), *nightly(*sorted(MASKED))]
)
def test_closed_form_is_within_five_percent_of_the_fabric(kernel: str) -> None:
    """One shape of each kernel over PEs, in fp16 on a WSE-2."""
    compare, grids, tiles = SWEEPS[kernel]
    closed_form, simulated = compare(Case("WSE-2", Dtype.FP16, *grids[0], tiles[0]))
    assert closed_form == pytest.approx(simulated, rel=BOUND)


@pytest.mark.parametrize("machine", ["WSE-3", "WSE-3 simulator"])
@pytest.mark.parametrize("kernel", ["GEMM, dense", "softmax", "layer norm"])
def test_closed_form_holds_on_every_machine(kernel: str, machine: str) -> None:
    """The same bound where hops, links and vector rates differ."""
    compare, grids, tiles = SWEEPS[kernel]
    closed_form, simulated = compare(Case(machine, Dtype.FP16, *grids[0], tiles[0]))
    assert closed_form == pytest.approx(simulated, rel=BOUND)


@pytest.mark.parametrize("tile", [(2, 4), (1, 4)])
def test_closed_form_of_a_softmax_along_a_wide_row(tile: tuple[int, int]) -> None:
    """Within 2 % in fp32; half-filled words of 16 bits cost the fabric a few cycles more.

    The second sum begins where the first one's broadcast arrives, which a star gains from.
    """
    compare, *_ = SWEEPS["softmax"]
    closed_form, simulated = compare(Case("WSE-2", Dtype.FP32, 1, 32, tile))
    assert closed_form == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize("kernel", ["chain", "broadcast", "2D broadcast"])
def test_closed_forms_of_collectives_hold_over_their_sweep(kernel: str) -> None:
    """All lengths and lines on a WSE-2, in words of two elements."""
    errors = [point.error for point in sweep(kernel, ["WSE-2"], [Dtype.FP16])]
    assert max(map(abs, errors)) <= BOUND
